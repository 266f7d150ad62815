"""The supervisor's one loop: events move the state machine, its actions start and remove the child.

In: settings, an inbox. Out: the current `Status`, marks on stdout, the exit code of the container.
Refuses to know: how facts are gathered, how a status is served.
"""

import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from warmstack_shared.backoff import BackOff
from warmstack_shared.checkpoint import files_stamp
from warmstack_shared.children import Child, kill_leftovers, reap
from warmstack_shared.inbox import Inbox, SignalCame
from warmstack_shared.marks import emit
from warmstack_shared.output import error_in, pass_on
from warmstack_shared.processes import own_pids
from warmstack_supervisor.facts import Found, RoomFound, Verified, verify, watch
from warmstack_supervisor.holding import Holding
from warmstack_supervisor.memory import find_room
from warmstack_supervisor.settings import Settings
from warmstack_supervisor.stale import remove_stale_segments
from warmstack_supervisor.states import Action, Event, State, step
from warmstack_supervisor.status import Status, utc_now

# `vllm preload`; in a module of ours for how its processes begin.
PRELOAD = (sys.executable, "-m", "warmstack_preload")
STOP_SECONDS = 8.0
READ_REST_SECONDS = 5.0
ROOM_SECONDS = 5.0  # between two looks at the memory while there is no room


class Supervisor:
    def __init__(self, settings: Settings, inbox: Inbox) -> None:
        self._settings = settings
        self._inbox = inbox
        self._tries = BackOff(limit=settings.max_restarts)
        self._child: Child | None = None
        self._reader: threading.Thread | None = None
        self._stop_watching = threading.Event()
        self._verified: Verified | None = None
        self._found: Found | None = None
        self._last_error: str | None = None  # written by the thread that reads the child's output
        self._started_at = 0.0
        self._starts = 0
        self._try_at = time.monotonic()
        self._looking = False  # a thread looks at the memory
        self._status = Status(
            state=State.STARTING,
            since=utc_now(),
            model=settings.model,
            identity=settings.identity,
            model_digest=settings.model_digest,
            files=None,
            bytes_held=0,
            rank_pids=(),
            highest_pid=0,
            restarts=0,
            reason=None,
            last_error=None,
            vllm_version=_vllm_version(),
            load_seconds=None,
            degraded=False,
        )

    @property
    def status(self) -> Status:
        return replace(self._status, last_error=self._last_error)

    def run(self) -> int:
        while self._status.state is not State.STOPPING:
            self._look_for_room_when_due()
            self._handle(self._inbox.get(self._wait_seconds()))
            self._notice_child_exit()
        return 0

    # -- events
    # ------------------------------------------------------------------------------------------------

    def _handle(self, event: Any) -> None:
        match event:
            case SignalCame(number=signal.SIGTERM | signal.SIGINT):
                self._move(Event.STOP, reason=None)
            case RoomFound(room=room):
                self._looking = False
                kind = Event.NEVER_FITS if room.never else Event.NO_ROOM if room.reason else Event.ROOM
                self._move(kind, reason=room.reason)
            case Verified() if self._is_current(event.pid):
                self._take_verified(event)
            case Found() if self._is_current(event.pid):
                self._take_found(event)

    def _is_current(self, pid: int) -> bool:
        return self._child is not None and self._child.pid == pid

    def _take_verified(self, verified: Verified) -> None:
        self._verified = verified
        if verified.problem and self._status.state is State.LOADING:
            self._move(Event.MISMATCH, reason=verified.problem)
        else:
            self._confirm_when_complete()

    def _take_found(self, found: Found) -> None:
        self._found = found
        if self._status.state is State.HELD:
            self._recheck(found)
        else:
            self._confirm_when_complete()

    def _confirm_when_complete(self) -> None:
        """Held means: vLLM says how many bytes, and the files were read and are the right ones."""
        holding = self._found.holding if self._found else None
        if self._status.state is State.LOADING and self._verified and holding and holding.bytes:
            self._confirm(self._verified, holding)

    def _confirm(self, verified: Verified, holding: Holding) -> None:
        if verified.files != files_stamp(self._settings.model_path):
            self._verified = None  # touched while it was loaded: read it again before anybody trusts it
            self._start_verifying()
            return
        self._status = replace(
            self._status,
            files=verified.files,
            bytes_held=holding.bytes,
            rank_pids=holding.pids,
            highest_pid=max((*own_pids(), *holding.pids)),
            load_seconds=round(time.monotonic() - self._started_at, 2),
            degraded=False,
            confirmed_at=time.monotonic(),
        )
        self._last_error = None
        self._tries.succeeded()
        self._move(Event.CONFIRMED, reason=None)

    def _recheck(self, found: Found) -> None:
        """No answer is no proof of a loss: /health says so after a while, and the weights stay."""
        if found.ready is False:
            self._move(Event.LOST, reason="vllm preload says that a rank is not there any more")
        elif found.holding and found.holding.bytes * 2 < self._status.bytes_held:
            self._move(Event.LOST, reason="vllm preload has released the weights")
        elif found.holding:
            self._status = replace(self._status, confirmed_at=time.monotonic())

    def _notice_child_exit(self) -> None:
        if not reap(self._child):
            return
        assert self._child is not None
        end = self._child.exit
        while_loading = self._status.state is State.LOADING
        self._remove_child()
        if while_loading:
            self._tries.failed()
        error = f": {self._last_error}" if self._last_error else ""
        sentence = f"vllm preload ended ({end}){error}"
        if while_loading and self._tries.exhausted:
            self._move(Event.EXHAUSTED, reason=f"{self._tries.failures} loads in a row failed; {sentence}")
        else:
            self._move(Event.CHILD_EXITED, reason=sentence)

    # -- state and actions
    # -------------------------------------------------------------------------------------

    def _move(self, event: Event, reason: str | None) -> None:
        before = self._status.state
        state, action = step(before, event)
        lost = before is State.HELD and state is not State.HELD
        self._status = replace(
            self._status,
            state=state,
            since=self._status.since if state is before else utc_now(),
            reason=reason,
            degraded=self._status.degraded or (lost and state is not State.STOPPING),
            bytes_held=self._status.bytes_held if state is State.HELD else 0,
            rank_pids=self._status.rank_pids if state is State.HELD else (),
        )
        if state is not before or reason:
            emit("weight-cache", state=state, reason=reason, bytes_held=self._status.bytes_held)
        self._actions[action]()

    @property
    def _actions(self) -> dict[Action, Callable[[], None]]:
        return {
            Action.NOTHING: lambda: None,
            Action.START_CHILD: self._start_child,
            Action.REMOVE_CHILD: self._remove_child,
            Action.LOOK_LATER: self._look_later,
            Action.RETRY_LATER: self._retry_later,
            Action.REMOVE_CHILD_AND_RETRY_LATER: self._remove_and_retry,
        }

    def _start_child(self) -> None:
        spawn = () if self._settings.fork_ranks else ("--spawn-ranks",)
        self._child = Child([*PRELOAD, *spawn, *self._settings.preload])
        self._started_at = time.monotonic()
        self._verified = self._found = None
        self._last_error = None
        self._status = replace(self._status, restarts=self._starts)
        self._starts += 1
        self._reader = threading.Thread(
            target=pass_on, args=(self._child.output, self._read_line), daemon=True
        )
        self._reader.start()
        self._start_verifying()
        self._stop_watching = threading.Event()
        watched = (self._settings, self._child.pid, self._inbox, self._stop_watching)
        threading.Thread(target=watch, args=watched, daemon=True).start()

    def _start_verifying(self) -> None:
        assert self._child is not None
        pid = self._child.pid
        self._inbox.answer_of(lambda: verify(self._settings, pid))

    def _read_line(self, line: str) -> None:
        if error := error_in(line):
            self._last_error = error

    def _remove_child(self) -> None:
        """End the child and everything below it; afterwards none of its processes is left."""
        if self._child is None:
            return
        self._stop_watching.set()
        self._child.send(signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while self._child.exit is None and not reap(self._child) and time.monotonic() < deadline:
            time.sleep(0.05)  # the child's end and the deadline decide, not this number
        kill_leftovers()
        reap(self._child)
        if self._reader:
            self._reader.join(READ_REST_SECONDS)
        self._child.close()
        self._child = None

    def _retry_later(self) -> None:
        self._try_at = time.monotonic() + self._tries.seconds

    def _look_later(self) -> None:
        self._try_at = time.monotonic() + ROOM_SECONDS

    def _remove_and_retry(self) -> None:
        self._remove_child()
        self._retry_later()

    def _look_for_room_when_due(self) -> None:
        due = self._status.state in (State.STARTING, State.WAITING) and time.monotonic() >= self._try_at
        if due and not self._looking:
            self._looking = True
            self._inbox.answer_of(self._look_for_room)

    def _look_for_room(self) -> RoomFound:
        if self._settings.platform == "cpu":
            for name in remove_stale_segments(self._settings.socket_folder):
                emit("stale-segment-removed", name=name)
        return RoomFound(room=find_room(self._settings))

    def _wait_seconds(self) -> float:
        if self._status.state in (State.STARTING, State.WAITING) and not self._looking:
            return min(1.0, max(0.0, self._try_at - time.monotonic()))
        return 1.0


def _vllm_version() -> str:
    """As users know it: "0.32.0", not "0.32.0+cpu"."""
    try:
        return version("vllm").partition("+")[0]
    except PackageNotFoundError:
        return "unknown"
