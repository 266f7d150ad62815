"""Runs a systemd unit as it stands, without systemd: its user, folders, variables and command."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from warmplan.unit_file import read_unit

# The folder that stands for the host's /opt is seen by this process alone, and so is its /tmp (PrivateTmp).
_AS_SYSTEMD = """
mount --bind "$0" /opt
mount -t tmpfs -o mode=1777 tmpfs /tmp
exec setpriv --reuid "$1" --regid "$2" --clear-groups --no-new-privs "${@:3}"
"""


@contextmanager
def running_unit(text: str, *, opt: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The unit as a process, for root; ended by SIGTERM to it alone, as by systemd. `opt` stands for /opt."""
    unit = read_unit(text)
    user, group = unit["User"][0][0], unit["Group"][0][0]
    program, *words = unit["ExecStart"][0]
    folders = [
        Path(root, *unit[name][0])
        for root, name in (("/var/lib", "StateDirectory"), ("/var/cache", "CacheDirectory"))
    ]
    variables = dict(line[0].split("=", 1) for line in unit["Environment"])
    for folder in folders:
        folder.mkdir(parents=True)
        os.chown(folder, int(user), int(group))
    try:
        with log.open("wb") as output:
            process = subprocess.Popen(
                [
                    "unshare",
                    "--mount",
                    "bash",
                    "-euc",
                    _AS_SYSTEMD,
                    str(opt),
                    user,
                    group,
                    program.removeprefix(":"),
                    *words,
                ],
                cwd="/",
                env={"USER": "warmstack", "LOGNAME": "warmstack", **variables},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(int(unit["TimeoutStopSec"][0][0]))
    finally:
        for folder in folders:
            shutil.rmtree(folder)
