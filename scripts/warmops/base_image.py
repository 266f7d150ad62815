"""Where the base image's Debian comes from.

In: the pins. Out: the name of an image to build `FROM`: the one that is on this host already, the registry's,
or one made from the distribution's own packages with debootstrap where no registry answers. Refuses to know
what is built on it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from warmops import console
from warmops.docker import Docker, DockerError
from warmops.pins import Pins

PULL_SECONDS = 180.0
DEBOOTSTRAP_SECONDS = 900.0
# What no container reads; /dev is Docker's.
_LEFT_OUT = (
    *("./usr/share/doc/*", "./usr/share/man/*", "./usr/share/locale/*", "./usr/share/info/*"),
    *("./var/cache/apt/*", "./var/lib/apt/lists/*", "./var/log/*", "./dev/*"),
)


def find_source(docker: Docker, pins: Pins) -> str:
    """Name of an image with Debian in it; raises UserError (exit 3) when there is no way to get one."""
    if docker.inspect(pins.base_image, "image") is not None:
        return pins.base_image
    try:
        docker.run("pull", pins.base_image, quiet=True, timeout_seconds=PULL_SECONDS)
        return pins.base_image
    except DockerError as error:
        reason = error.problems[0].problem.splitlines()[-1]
    console.say(
        f"no image registry gave {pins.base_image} ({reason}): making the base from Debian's packages"
    )
    return _debootstrap(docker, pins)


def _debootstrap(docker: Docker, pins: Pins) -> str:
    program = shutil.which("debootstrap", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None or os.geteuid() != 0:
        raise console.failure(
            f"{pins.base_image} cannot be pulled, and making it here needs debootstrap and root",
            f"docker pull {pins.base_image} on a host with a registry and docker save/load it, "
            "or install debootstrap and run this as root",
            exit_code=3,
        )
    tag = f"warmstack/debootstrap:{pins.base_suite}"
    with tempfile.TemporaryDirectory(prefix="warmstack-base-", dir="/var/tmp") as folder:
        root = Path(folder) / "root"
        command = [program, "--variant=minbase", f"--include={','.join(pins.base_packages)}", pins.base_suite]
        _run([*command, str(root), *_host_mirror()], DEBOOTSTRAP_SECONDS)
        archive = Path(folder) / "root.tar"
        excludes = [f"--exclude={pattern}" for pattern in _LEFT_OUT]
        _run(["tar", "-C", str(root), *excludes, "-cf", str(archive), "."], 300)
        docker.run("import", str(archive), tag, quiet=True)
    return tag


def _host_mirror() -> list[str]:
    """The mirror that this Debian host's apt uses; elsewhere nothing: debootstrap knows one itself."""
    os_release = Path("/etc/os-release")
    if not os_release.exists() or "\nID=debian\n" not in f"\n{os_release.read_text(encoding='utf-8')}\n":
        return []
    asked = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(SITE) $(CODENAME)", "Created-By: Packages"],
        capture_output=True,
        text=True,
        check=False,
    )
    sites = [line.split()[0] for line in asked.stdout.splitlines() if line.strip() and "security" not in line]
    return sites[:1]


def _run(command: list[str], seconds: float) -> None:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        raise console.failure(f"{command[0]} was not done after {seconds:g} s", exit_code=3) from None
    if done.returncode != 0:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise console.failure(
            f"{Path(command[0]).name} ended with exit code {done.returncode}: {' '.join(lines[-3:])}",
            "check that apt-get update works on this host",
            exit_code=3,
        )
