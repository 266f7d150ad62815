"""PID 1's side of the nursery: starts it, asks it for engines, notices its end.

In: settings, an inbox. Out: engines as `Nursling`, marks. Refuses to know: when an engine is wanted.
Nothing depends on a nursery: without one an engine is started from the command line, only later ready.
"""

import array
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from warmstack_engine.late_imports import make_record, record_bytes
from warmstack_engine.nursery import MESSAGE_BYTES
from warmstack_shared.children import Process
from warmstack_shared.inbox import Inbox
from warmstack_shared.marks import emit

FORK_SECONDS = 60.0  # it may be importing what the engine before taught it
_MOST_FAILURES = 5


class NurseryState(StrEnum):
    OFF = "off"  # not wanted, or given up
    IMPORTING = "importing"
    READY = "ready"
    GONE = "gone"


@dataclass(frozen=True, kw_only=True)
class NurserySaid:
    """A message of the nursery that has process `pid`; None: its socket is closed."""

    pid: int
    message: dict[str, Any] | None


class Nurse:
    """Keeps at most one nursery. Its events come through the inbox and must be given to `hear`."""

    def __init__(self, inbox: Inbox, *, wanted: bool, list_path: Path) -> None:
        self._inbox = inbox
        self._list_path = list_path
        self._channel: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._handle = -1  # of the process: a number may be given to another one
        self._failures = 0
        self._born: int | None = None
        self.state = NurseryState.GONE if wanted else NurseryState.OFF

    @property
    def pid(self) -> int | None:
        """Of a living nursery."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Begin to import, in a process of its own. Nothing when there is one, or none is wanted."""
        if self.state is not NurseryState.GONE:
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            arguments = ["-m", "warmstack_engine.nursery", str(theirs.fileno()), str(self._list_path)]
            self._process = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self._handle = os.pidfd_open(self._process.pid)
        self._channel = ours
        self.state = NurseryState.IMPORTING
        emit("nursery", state=self.state, pid=self._process.pid)
        threading.Thread(target=self._listen, args=(ours, self._process.pid), daemon=True).start()

    def hear(self, event: object) -> None:
        """Take a `NurserySaid` in; anything else is not for here."""
        if not isinstance(event, NurserySaid) or event.pid != self.pid:
            return
        if event.message is None:
            self.give_up("it ended")
            return
        facts = dict(event.message)
        match facts.pop("event"):
            case "ready":
                self.state = NurseryState.READY
                self._failures = 0
                emit("nursery", state=self.state, pid=self.pid, **facts)
            case "forked":
                self._born = facts["pid"]
            case "learned":
                emit("nursery", state="learned", pid=self.pid, **facts)
            case "unfit":
                if facts["hopeless"]:
                    self._failures = _MOST_FAILURES
                self.give_up(facts["sentence"])

    def fork(self, arguments: list[str]) -> "Nursling | None":
        """An engine out of a nursery that is ready; None when it has none to give."""
        if self.state is not NurseryState.READY or self._channel is None:
            return None
        read_end, write_end = os.pipe()
        record = make_record()
        self._born = None
        try:
            _send(self._channel, {"do": "fork", "arguments": arguments}, write_end, record)
            self._await_birth()
        except OSError:
            self.give_up("it does not take orders any more")
        finally:
            os.close(write_end)
        if not self._born:
            os.close(read_end)
            os.close(record)
            return None
        return Nursling(pid=self._born, output=read_end, record=record)

    def teach(self, engine: "Nursling") -> None:
        """Let the nursery import what this engine had to import by itself, once it imports no more."""
        if self.state is NurseryState.READY and self._channel and engine.has_something_new():
            try:
                _send(self._channel, {"do": "learn"}, engine.record)
            except OSError:
                self.give_up("it does not take orders any more")

    def close(self) -> None:
        """End the nursery."""
        if self._process:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            self._forget()

    def _await_birth(self) -> None:
        """Other events wait meanwhile: what was forked must not be lost over a signal."""
        others = []
        deadline = time.monotonic() + FORK_SECONDS
        while self._born is None and self.state is NurseryState.READY:
            event = self._inbox.get(0.5)
            if isinstance(event, NurserySaid):
                self.hear(event)
            elif event is not None:
                others.append(event)
            if time.monotonic() > deadline:
                self.give_up(f"it gave no engine within {FORK_SECONDS:.0f} s")
        for event in others:
            self._inbox.put(event)

    def give_up(self, why: str) -> None:
        """End it; another one is made while the next engine serves, unless that was the last try."""
        self._failures += 1
        pid = self.pid
        self.close()
        self.state = NurseryState.OFF if self._failures >= _MOST_FAILURES else NurseryState.GONE
        emit("nursery", state=self.state, pid=pid, sentence=f"engines are started without it: {why}")

    def _forget(self) -> None:
        assert self._process is not None
        assert self._channel is not None
        self._process.wait()
        os.close(self._handle)
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)  # wakes the thread that listens
        self._channel.close()
        self._process, self._channel = None, None
        self.state = NurseryState.GONE

    def _listen(self, channel: socket.socket, pid: int) -> None:
        while True:
            try:
                text = channel.recv(MESSAGE_BYTES)
            except OSError:  # closed here
                return
            self._inbox.put(NurserySaid(pid=pid, message=json.loads(text) if text else None))
            if not text:
                return


class Nursling(Process):
    """An engine that came out of the nursery, with the record of what it still had to import."""

    def __init__(self, *, pid: int, output: int, record: int) -> None:
        super().__init__(pid=pid, output=output)
        self.record = record
        self._taught_bytes = 0
        self._last_bytes = 0

    def has_something_new(self) -> bool:
        """Asked now and then: names came since the last lesson, and none since the last question."""
        now = record_bytes(self.record)
        quiet, self._last_bytes = now == self._last_bytes, now
        if quiet and now > self._taught_bytes:
            self._taught_bytes = now
            return True
        return False

    def close(self) -> None:
        super().close()
        os.close(self.record)


def _send(channel: socket.socket, message: dict[str, Any], *handles: int) -> None:
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", handles))
    channel.sendmsg([json.dumps(message).encode()], [rights])
