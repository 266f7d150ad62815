"""Caddy as the child of PID 1.

In: the settings. Out: its exit status. Signals are passed on to it, and whatever else ends below PID 1 is
collected. Refuses to know what Caddy serves.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)


class Caddy:
    """A running Caddy. `stopping` is called once, when a signal asks it to end."""

    def __init__(
        self, command: list[str], environment: Mapping[str, str], stopping: Callable[[], None]
    ) -> None:
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._asked_to_end = False
        self._stopping = stopping
        self._listen()
        self._process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)

    async def wait(self) -> int:
        """Its exit code, or 128 + the signal that killed it."""
        self._reap()  # it may have ended before anybody listened
        return await self._ended

    def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        for number in PASSED_ON:
            loop.add_signal_handler(number, self._pass_on, number)

    def _pass_on(self, number: signal.Signals) -> None:
        if self._ended.done():
            return
        os.kill(self._process.pid, number)
        if number in ENDS and not self._asked_to_end:
            self._asked_to_end = True
            self._stopping()

    def _reap(self) -> None:
        """Collect every child that has ended; PID 1 inherits those of others."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._process.pid and not self._ended.done():
                code = os.waitstatus_to_exitcode(status)
                self._process.returncode = code  # so that Popen does not wait for a process that is reaped
                self._ended.set_result(code if code >= 0 else 128 - code)


def command_of(caddyfile: Path) -> list[str]:
    return ["caddy", "run", "--config", str(caddyfile), "--adapter", "caddyfile"]


def environment_of(environment: Mapping[str, str], data: Path, sockets: Path) -> dict[str, str]:
    """Where Caddy writes; the rest is as it came."""
    return {
        **environment,
        "XDG_DATA_HOME": str(data),
        "XDG_CONFIG_HOME": str(sockets),
        "TMPDIR": str(sockets),
    }
