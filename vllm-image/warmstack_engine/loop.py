"""The engine's one loop: wait for the weight cache, start vLLM, hear of its end, start again, within bounds.

In: settings, an inbox. Out: marks on stdout, the exit code of the container. Refuses to know: how each part
works.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from warmstack_engine.arguments import without_weight_cache
from warmstack_engine.compile_cache import CompileCache
from warmstack_engine.control import RestartAsked
from warmstack_engine.ledger import Ledger
from warmstack_engine.log_reading import LogReading, MissLine
from warmstack_engine.nurse import Nurse, NurseryState, Nursling
from warmstack_engine.pids import NotPossibleError, collides, move_past
from warmstack_engine.settings import Settings
from warmstack_engine.watching import Hung, Ready, watch
from warmstack_engine.weight_cache import Held, Miss, wait_for_cache
from warmstack_shared.backoff import BackOff
from warmstack_shared.children import Child, Process, kill_leftovers, reap
from warmstack_shared.inbox import Inbox, SignalCame
from warmstack_shared.marks import emit
from warmstack_shared.output import pass_on

# Docker kills after 10 s by default. vLLM ignores SIGTERM while it loads, so there it is not waited for long.
STOP_SECONDS = 8.0
STOP_WHILE_LOADING_SECONDS = 2.0
READ_REST_SECONDS = 5.0
# Far more than the imports of vLLM take anywhere; after it something is wrong with the nursery.
IMPORT_SECONDS = 600.0
VLLM = ("vllm", "serve")


class StopAsked(Exception):
    """SIGTERM or SIGINT came."""


class RestartWanted(Exception):
    """A new engine process was asked for. By the time that it is caught the old one is gone."""

    def __init__(self, asked: RestartAsked) -> None:
        super().__init__()
        self.asked = asked


@dataclass(frozen=True, kw_only=True)
class Answered:
    """What the weight cache told the start that asked; an earlier start's answer is for nobody."""

    attempt: int
    found: Held | Miss


@dataclass(frozen=True, kw_only=True)
class End:
    """How one start ended."""

    was_ready: bool
    sentence: str


class Engine:
    def __init__(self, settings: Settings, inbox: Inbox, command: tuple[str, ...] = VLLM) -> None:
        self._settings = settings
        self._inbox = inbox
        self._command = command
        self._nurse = Nurse(inbox, wanted=settings.nursery, list_path=settings.imports_list)
        self.ledger = Ledger()
        self._compiled = CompileCache(folders=settings.compile_folders)
        self._attempt = 0
        self._care_at = 0.0

    @property
    def nursery(self) -> NurseryState:
        return self._nurse.state

    def run(self) -> int:
        """Until it is asked to stop (0), or gave up and is then asked to stop (1)."""
        code = 0
        self._nurse.start()
        try:
            while True:
                try:
                    code = 0
                    emit("gave-up", sentence=self._start_again_and_again())
                    code = 1
                    self._stay()
                except RestartWanted as wanted:
                    wanted.asked.done(start=self._nurse.state)
        except StopAsked:
            return code
        finally:
            self._nurse.close()

    def _start_again_and_again(self) -> str:
        """Returns why it is given up."""
        tries = BackOff(limit=self._settings.max_restarts)
        while True:
            self._attempt += 1
            emit("engine-start", attempt=self._attempt)
            if sentence := self._compiled.set_aside():
                emit("compile-cache", state="set-aside", sentence=sentence)
            end = self._one_start()
            tries.succeeded() if end.was_ready else tries.failed()
            if tries.exhausted:
                return f"{tries.failures} starts in a row failed, the last one: {end.sentence}"
            self._pause(tries.seconds)

    def _one_start(self) -> End:
        found = self._ask_weight_cache()
        if isinstance(found, Miss) and self._settings.on_miss == "refuse":
            emit("miss", reason=found.reason, outcome="refused", sentence=found.sentence)
            return End(was_ready=False, sentence=found.sentence)
        if isinstance(found, Miss):
            emit("miss", reason=found.reason, outcome="fallback", sentence=found.sentence)
            self._await_nursery()
            return self._serve(without_weight_cache(self._settings.serve), ranks=())
        emit(
            "weight-cache-ready",
            waited_seconds=found.waited_seconds,
            bytes_held=found.bytes_held,
            identity=self._settings.identity,
        )
        self._await_nursery()
        try:
            seconds = move_past(found.highest_pid, found.rank_pids)
        except NotPossibleError as error:
            emit("miss", reason="pid_collision", outcome="refused", sentence=str(error))
            return End(was_ready=False, sentence=str(error))
        emit("pids-moved", past=found.highest_pid, seconds=round(seconds, 3))
        return self._serve(list(self._settings.serve), ranks=found.rank_pids)

    def _ask_weight_cache(self) -> Held | Miss:
        """In a thread: it may read a whole checkpoint, and signals are to be heard meanwhile."""
        attempt = self._attempt
        self._inbox.answer_of(lambda: Answered(attempt=attempt, found=wait_for_cache(self._settings)))
        while True:
            event = self._next()
            if isinstance(event, Answered) and event.attempt == attempt:
                return event.found

    def _await_nursery(self) -> None:
        """A nursery that still imports has a lead over any process that would begin to."""
        started = time.monotonic()
        while self._nurse.state is NurseryState.IMPORTING:
            self._next()
            if time.monotonic() - started > IMPORT_SECONDS:
                self._nurse.give_up(f"it did not import vLLM within {IMPORT_SECONDS:.0f} s")
        if self._nurse.state is NurseryState.READY:
            emit("nursery-ready", waited_seconds=round(time.monotonic() - started, 3))

    def _serve(self, arguments: list[str], ranks: tuple[int, ...]) -> End:
        forked = self._nurse.fork([*self._command[1:], *arguments])
        child = forked or Child([*self._command, *arguments])
        emit("serve", pid=child.pid, nursery=forked is not None)
        if collides(child.pid, ranks):
            return self._end_collision(child)
        reading = LogReading()
        reader = threading.Thread(
            target=pass_on, args=(child.output, _marking(reading, self.ledger, self._compiled)), daemon=True
        )
        reader.start()
        stop_watching = threading.Event()
        threading.Thread(
            target=watch,
            args=(child.pid, self._settings.port, self._inbox, stop_watching),
            kwargs={"hang_seconds": self._settings.hang_seconds, "standby": self._settings.standby},
            daemon=True,
        ).start()
        try:
            ready, hung = self._until_end(child, reading)
        finally:
            stop_watching.set()
        left = self._remove_leftovers()
        reader.join(READ_REST_SECONDS)  # the last writer is gone by now: its last lines say why
        if not ready and not reading.refusal():
            self._compiled.failed()
        return _report_end(child, reading, ready=ready, hung=hung, left=left)

    def _end_collision(self, child: Process) -> End:
        sentence = f"vllm serve got process {child.pid}, too close to the weight cache's"
        self._stop(child, 0.0)
        emit("miss", reason="pid_collision", outcome="refused", sentence=sentence)
        return End(was_ready=False, sentence=sentence)

    def _until_end(self, child: Process, reading: LogReading) -> tuple[bool, str | None]:
        """Whether it became ready, and the sentence when it hung."""
        ready = False
        hung: str | None = None
        while child.exit is None:
            event = self._next_or_stop(child, ready)
            if isinstance(event, Ready) and event.pid == child.pid:
                ready = True
                if miss := reading.unexplained_fallback():
                    _emit_miss(miss)
                emit("ready")
                self._compiled.succeeded()
            elif isinstance(event, Hung) and event.pid == child.pid:
                hung = event.sentence
                child.send(signal.SIGKILL)
            if ready:
                self._care(child)
            reap(child)
        return ready, hung

    def _care(self, child: Process) -> None:
        """While an engine serves: a nursery that is gone is made anew, one that lives learns from it."""
        if time.monotonic() < self._care_at:
            return
        self._care_at = time.monotonic() + self._settings.care_seconds
        self._nurse.start()
        if isinstance(child, Nursling):
            self._nurse.teach(child)

    def _next(self, timeout_seconds: float = 1.0) -> Any:
        event = self._inbox.get(timeout_seconds)
        if isinstance(event, SignalCame) and event.number in (signal.SIGTERM, signal.SIGINT):
            raise StopAsked
        if isinstance(event, RestartAsked):
            raise RestartWanted(event)
        self._hear_nursery(event)
        return event

    def _hear_nursery(self, event: Any) -> None:
        """One that has just ended is made anew a while later: a start that follows at once is not held up by
        its imports.
        """
        there = self._nurse.pid
        self._nurse.hear(event)
        if there is not None and self._nurse.pid is None:
            self._care_at = time.monotonic() + self._settings.care_seconds

    def _next_or_stop(self, child: Process, ready: bool) -> Any:
        try:
            return self._next()
        except (StopAsked, RestartWanted):
            self._stop(child, STOP_SECONDS if ready else STOP_WHILE_LOADING_SECONDS)
            raise

    def _stop(self, child: Process, grace_seconds: float) -> None:
        started = time.monotonic()
        child.send(signal.SIGTERM)
        deadline = started + grace_seconds
        while not reap(child) and time.monotonic() < deadline:
            self._inbox.get(min(0.2, max(0.0, deadline - time.monotonic())))
        self._remove_leftovers()
        reap(child)
        emit("engine-stopped", seconds=round(time.monotonic() - started, 3))
        child.close()

    def _pause(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._next(left)

    def _stay(self) -> None:
        """Alive and unhealthy: the log stays readable, and no restart policy starts the loop anew."""
        while True:
            self._next(60.0)
            reap(None)

    def _remove_leftovers(self) -> str:
        """Kill what the child left behind (an engine core outlives its API server); a phrase names it."""
        killed = kill_leftovers(spare=self._nurse.pid)
        if not killed:
            return ""
        return "; killed what it left: " + ", ".join(f"{pid} {command[:60]}" for pid, command in killed)


def _report_end(child: Process, reading: LogReading, *, ready: bool, hung: str | None, left: str) -> End:
    refusal = None if ready else reading.refusal()
    if refusal:
        _emit_miss(refusal)
    sentence = hung or (refusal.sentence if refusal else _exit_sentence(child, reading, ready))
    assert child.exit is not None
    emit(
        "engine-exit",
        code=child.exit.code,
        signal=child.exit.signal,
        crash=True,  # nobody asked for it, whatever the code says: vLLM exits 0 when its core dies
        error=reading.last_error,
        sentence=sentence + left,
    )
    child.close()
    return End(was_ready=ready, sentence=sentence)


def _marking(reading: LogReading, ledger: Ledger, compiled: CompileCache) -> Callable[[str], None]:
    """Reads a line, and marks what it proves right behind it."""

    def read(line: str) -> None:
        ledger.line(line, time.time())
        if sentence := compiled.read(line):
            emit("compile-cache", state="rebuilt", sentence=sentence)
        if miss := reading.feed(line):
            _emit_miss(miss)

    return read


def _emit_miss(miss: MissLine) -> None:
    outcome = "fallback" if miss.fallback else "refused"
    emit("miss", reason=miss.reason, outcome=outcome, sentence=miss.sentence)


def _exit_sentence(child: Process, reading: LogReading, ready: bool) -> str:
    when = "while it served" if ready else "before it was ready"
    error = f": {reading.last_error}" if reading.last_error else ""
    return f"vllm serve ended {when}, {child.exit}{error}"


def is_pid_one() -> bool:
    return os.getpid() == 1
