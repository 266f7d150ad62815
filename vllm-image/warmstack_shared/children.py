"""Starts one child, hears of its end, and removes what it leaves behind. For a process that is PID 1.

In: a command. Out: `Exit`. Refuses to know: what the child is for.
Only descendants of this process are ever signalled, each by its process id.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from dataclasses import dataclass

from warmstack_shared.processes import command_of, descendants

_PR_SET_CHILD_SUBREAPER = 36
_RESOURCE_TRACKER = "multiprocessing.resource_tracker"
_TRACKER_SECONDS = 3.0
_MOST_SIGNALS = 64


@dataclass(frozen=True, kw_only=True)
class Exit:
    """How a child ended: an exit code, or the number of the signal that killed it."""

    code: int | None
    signal: int | None

    @property
    def status(self) -> int:
        """As a shell says it: the code, or 128 + signal."""
        return 128 + self.signal if self.signal is not None else self.code or 0

    def __str__(self) -> str:
        if self.signal is not None:
            return f"killed by {_signal_name(self.signal)}"
        if self.code is not None and self.code > 256 - _MOST_SIGNALS:
            # `vllm preload` exits with the negative exit code of a rank, as Python has it for a killed
            # process.
            return f"exit code {self.code}: a process of it was killed by {_signal_name(256 - self.code)}"
        return f"exit code {self.code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def exit_of(wait_status: int) -> Exit:
    if os.WIFSIGNALED(wait_status):
        return Exit(code=None, signal=os.WTERMSIG(wait_status))
    return Exit(code=os.WEXITSTATUS(wait_status), signal=None)


def become_reaper() -> None:
    """Orphans below this process become its children. PID 1 has them anyway; a test has them this way too."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


class Process:
    """A running child of this process. `output` is the read end of its stdout and stderr together."""

    def __init__(self, *, pid: int, output: int) -> None:
        self.pid = pid
        self.output = output
        self.exit: Exit | None = None

    def send(self, number: int) -> None:
        if self.exit is None:
            os.kill(self.pid, number)

    def close(self) -> None:
        os.close(self.output)

    def ended(self, end: Exit) -> None:
        """Told by `reap`."""
        self.exit = end


class Child(Process):
    """A child that is started here, from a command."""

    def __init__(self, command: list[str], environment: dict[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a Ctrl-C in the terminal reaches it through us only
        )
        assert self._process.stdout is not None
        super().__init__(pid=self._process.pid, output=self._process.stdout.fileno())

    def close(self) -> None:
        assert self._process.stdout is not None
        self._process.stdout.close()

    def ended(self, end: Exit) -> None:
        super().ended(end)
        self._process.returncode = end.status  # so that Popen does not wait for a process that is reaped


def reap(child: Process | None) -> bool:
    """Collect every child of this process that has ended. True when `child` was among them."""
    found = False
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if child is not None and pid == child.pid:
            child.ended(exit_of(status))
            found = True


def kill_leftovers(spare: int | None = None, limit_seconds: float = 10.0) -> list[tuple[int, str]]:
    """SIGKILL every descendant but `spare`, by id, until there is none. Returns (pid, command) of each one
    killed.

    Python's resource trackers end by themselves once the others are gone, and remove the semaphores those
    left in /dev/shm; they are killed only when they do not.
    Raises TimeoutError naming those that do not go (they hang in the kernel, for example in a driver).
    """
    killed: dict[int, str] = {}
    started = time.monotonic()
    while left := _living_descendants(spare):
        waited = time.monotonic() - started
        for pid in left:
            command = command_of(pid)
            if _RESOURCE_TRACKER in command and waited < _TRACKER_SECONDS:
                continue
            killed.setdefault(pid, command)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if waited > limit_seconds:
            raise TimeoutError(f"processes {left} do not end after SIGKILL")
        time.sleep(0.02)  # the kernel needs a moment; the loop's condition decides, not this number
    return sorted(killed.items())


def _living_descendants(spare: int | None) -> list[int]:
    reap(None)
    return [pid for pid in descendants(os.getpid()) if pid != spare]
