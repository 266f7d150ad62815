"""Wheels that the image builds install from, fetched by the host's pip.

In: lock files (exact versions with hashes) and a folder. Out: the folder holds exactly the wheels of the
locks, for the images' Python 3.11 whatever Python the host has. Refuses to know where packages come from:
indexes, mirrors, proxies, certificates and wheel folders are whatever the user's pip is configured with.
"""

from __future__ import annotations

import hashlib
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from warmops import console
from warmplan.errors import UserError

IMAGE_PYTHON = "3.11"
LOCKED_FOR = "x86_64"  # see scripts/relock
# Debian 12 has glibc 2.36: pip does not take "and older" from one tag, so all of them are named.
_GLIBC_MINORS = (5, 12, 17, 24, 26, 27, 28, 31, 34, 35, 36)
_STAMP = ".complete"
_REQUIREMENT = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==([^\s;\\]+)")


@dataclass(frozen=True, kw_only=True)
class WheelList:
    """One folder of wheels: its name below the wheelhouse and the locks that fill it."""

    name: str
    locks: tuple[Path, ...]


def read_requirements(lock: Path) -> dict[str, str]:
    """Normalised package name → exact version."""
    found = (_REQUIREMENT.match(line) for line in lock.read_text(encoding="utf-8").splitlines())
    return {normalise(match[1]): match[2] for match in found if match}


def normalise(name: str) -> str:
    """PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


def locks_digest(locks: Sequence[Path]) -> str:
    digest = hashlib.sha256(f"{IMAGE_PYTHON} {platform.machine()}".encode())
    for lock in locks:
        digest.update(lock.read_bytes())
    return digest.hexdigest()


def download_arguments(lock: Path, folder: Path, machine: str) -> list[str]:
    """Arguments of `pip` for one lock."""
    tags = [f"manylinux_2_{minor}_{machine}" for minor in _GLIBC_MINORS]
    tags += [
        f"manylinux2014_{machine}",
        f"manylinux2010_{machine}",
        f"manylinux1_{machine}",
        f"linux_{machine}",
    ]
    return [
        *("download", "--no-deps", "--require-hashes", "--only-binary=:all:", "--no-input"),
        *("--disable-pip-version-check", "--progress-bar", "off", "--implementation", "cp"),
        *("--python-version", IMAGE_PYTHON, *(part for tag in tags for part in ("--platform", tag))),
        *("--requirement", str(lock), "--dest", str(folder)),
    ]


def fill(wheels: WheelList, root: Path, on_wheel: Callable[[], None] = lambda: None) -> Path:
    """Fetch what is missing and remove what no lock names; returns the folder. `on_wheel`: one more wheel.

    Raises UserError (exit 3) when pip cannot get a wheel.
    """
    if platform.machine() != LOCKED_FOR:
        raise console.failure(
            f"the images' packages are locked for {LOCKED_FOR}, and this host is {platform.machine()}",
            f"use an {LOCKED_FOR} host, or lock the packages for yours: scripts/relock",
            exit_code=3,
        )
    folder = root / wheels.name
    stamp = folder / _STAMP
    digest = locks_digest(wheels.locks)
    wanted = {name: version for lock in wheels.locks for name, version in read_requirements(lock).items()}
    if _is_complete(folder, digest, wanted):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    stamp.unlink(missing_ok=True)
    for lock in wheels.locks:
        _download(lock, folder, on_wheel)
    for wheel in folder.glob("*.whl"):
        if not _is_wanted(wheel, wanted):
            wheel.unlink()
    stamp.write_text(digest, encoding="utf-8")
    return folder


def _is_complete(folder: Path, digest: str, wanted: dict[str, str]) -> bool:
    stamp = folder / _STAMP
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != digest:
        return False
    return sum(1 for _ in folder.glob("*.whl")) == len(wanted)


def _is_wanted(wheel: Path, wanted: dict[str, str]) -> bool:
    name, version = wheel.name.split("-")[:2]
    return wanted.get(normalise(name), "").replace("-", "_") == version.replace("-", "_")


def _download(lock: Path, folder: Path, on_wheel: Callable[[], None]) -> None:
    command = [sys.executable, "-m", "pip", *download_arguments(lock, folder, platform.machine())]
    said: list[str] = []
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line.rstrip())
            if line.startswith("Collecting "):
                on_wheel()
    if process.returncode != 0:
        raise explain(lock.name, said)


def explain(lock_name: str, said: Sequence[str]) -> UserError:
    """What pip's last words mean for a user."""
    errors = [line.removeprefix("ERROR: ") for line in said if line.startswith("ERROR: ")] or list(said[-3:])
    missing = next((line for line in errors if "No matching distribution" in line), None)
    if missing and "+cpu" in missing:
        return console.failure(
            f"pip does not find torch's CPU build ({missing.split()[-1]}), which {lock_name} needs",
            "add PyTorch's CPU wheel index to pip (pip config set global.extra-index-url URL; PyTorch's "
            "installation page gives the URL), or put the wheel in a folder and set PIP_FIND_LINKS to it",
            exit_code=3,
        )
    if any("THESE PACKAGES DO NOT MATCH THE HASHES" in line for line in said):
        return console.failure(
            f"a package that pip fetched for {lock_name} differs from the locked one: {' '.join(said[-6:])}",
            "empty pip's cache (pip cache purge), or look at what your index serves under that version",
            exit_code=3,
        )
    return console.failure(
        f"pip could not fetch the packages of {lock_name}: {errors[-1] if errors else 'no message'}",
        "check the network, and pip's index, proxy and certificate settings (pip config list)",
        exit_code=3,
    )
