"""The weight cache as a process of this host: asking it, and saying how its unit is installed.

In: a project's name and the port of its status. Out: what its supervisor says, what it runs as; or a
UserError with the commands for a person. It starts and stops nothing: that is systemd's, and root's.
"""

from __future__ import annotations

import http.client
import json
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warmops.console import failure
from warmplan import Plan, UserError
from warmplan.placement import HOST_STATE, host_folder
from warmplan.unit import unit_name

ASK_SECONDS = 3.0
_PEER = struct.Struct("3i")


@dataclass(frozen=True, kw_only=True)
class RunningCache:
    """The supervisor's process: its user, the words and the variables that it was started with."""

    pid: int
    user: int
    command: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class HostCache:
    """The weight cache of a project on this host; `port` is that of its status on 127.0.0.1."""

    project: str
    port: int

    @property
    def folder(self) -> Path:
        return Path(HOST_STATE) / host_folder(self.project)

    @property
    def socket(self) -> Path:
        return self.folder / "supervisor.sock"

    @property
    def unit(self) -> str:
        return unit_name(self.project)

    def status(self) -> dict[str, Any] | None:
        """The supervisor's /status; None when it does not answer.

        Its socket says whose weight cache it is. A user who may not open that asks the port.
        """
        try:
            with _open(self.socket) as probe:
                return _get(probe)
        except PermissionError:
            return self._status_by_port()
        except OSError:
            return None

    def process(self) -> RunningCache:
        """What answers at the socket. Raises UserError (exit code 1) when nothing does, and without root."""
        try:
            with _open(self.socket) as probe:
                raw = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
            pid, user, _ = _PEER.unpack(raw)
            command = _null_separated(Path(f"/proc/{pid}/cmdline"))
            pairs = (item.partition("=") for item in _null_separated(Path(f"/proc/{pid}/environ")))
            environment = {name: value for name, _, value in pairs}
        except PermissionError:
            hint = "run it as root: sudo"
            raise failure(f"only root may look at the process of {self.unit}", hint, exit_code=1) from None
        except OSError:
            raise self.no_answer() from None
        return RunningCache(pid=pid, user=user, command=command, environment=environment)

    def no_answer(self) -> UserError:
        """Why a command cannot go on, and how the unit is started."""
        problem = (
            f"the weight cache of {self.project} is a process of this host, and none answers at {self.socket}"
        )
        hint = f"sudo systemctl start {self.unit}   (see its log: journalctl -u {self.unit})"
        return failure(problem, hint, exit_code=1)

    def _status_by_port(self) -> dict[str, Any] | None:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=ASK_SECONDS) as probe:
                return _get(probe)
        except OSError:
            return None


def require(plan: Plan, cache: HostCache, unit_file: Path) -> None:
    """Raise UserError (exit code 1) unless the plan's weight cache is up on this host, for the same weights.

    The hint has the commands that install, start or replace the unit; `unit_file` is its text.
    """
    status = cache.status()
    install = f"sudo install -m 644 {unit_file} /etc/systemd/system/{cache.unit}"
    held = str((status or {}).get("identity"))
    if status is None:
        then = f"sudo systemctl enable --now {cache.unit}"
        problem = f"the weight cache is a process of this host, and none answers at {cache.socket}"
    elif held != plan.identity.value:
        then = f"sudo systemctl restart {cache.unit}"
        problem = (
            f"{cache.unit} holds {status.get('model')} (identity {held[:16]}), and this needs "
            f"{plan.model.name} (identity {plan.identity.short}): its restart drops what is held"
        )
    else:
        return
    hint = f"docs/host.md; {install} && sudo systemctl daemon-reload && {then}"
    raise failure(problem, hint, exit_code=1, key="weight_cache.placement")


def _open(path: Path) -> socket.socket:
    """A connection to the supervisor. Raises OSError; PermissionError to a user who may not."""
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    probe.settimeout(ASK_SECONDS)
    try:
        probe.connect(str(path))
    except OSError:
        probe.close()
        raise
    return probe


def _get(connection: socket.socket) -> dict[str, Any] | None:
    """The JSON of /status; None when the answer is something else."""
    connection.sendall(b"GET /status HTTP/1.0\r\nHost: localhost\r\n\r\n")
    response = http.client.HTTPResponse(connection)
    try:
        response.begin()
        value = json.loads(response.read())
    except (http.client.HTTPException, ValueError):
        return None
    finally:
        response.close()
    return value if isinstance(value, dict) and response.status == 200 else None


def _null_separated(path: Path) -> tuple[str, ...]:
    text = path.read_bytes().decode(errors="surrogateescape")
    return tuple(text.rstrip("\0").split("\0"))
