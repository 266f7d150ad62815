"""Watches the engine over its own HTTP port: is it ready, does it still make tokens.

In: a port. Out: `Ready`, `Hung` through the inbox; a standby is asked once. Refuses to know: processes; the
loop decides what follows.
"""

import re
import threading
import time
from dataclasses import dataclass

from warmstack_engine.warming import warm_up
from warmstack_shared.inbox import Inbox
from warmstack_shared.local_http import NoAnswerError, get_tcp
from warmstack_shared.marks import emit

READY_POLL_SECONDS = 0.1
ASK_SECONDS = 5.0

_RUNNING = re.compile(r"^vllm:num_requests_running(?:\{.*\})? (\S+)$", re.MULTILINE)
# Counted at each step of the engine, also while a long prompt is read and no token comes yet.
_PROGRESS = re.compile(
    r"^vllm:(?:generation_tokens_total|prompt_tokens_total|iteration_tokens_total_count)(?:\{.*\})? (\S+)$",
    re.MULTILINE,
)


@dataclass(frozen=True, kw_only=True)
class Ready:
    pid: int


@dataclass(frozen=True, kw_only=True)
class Hung:
    pid: int
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Sample:
    running: float
    progress: float


def read_metrics(text: str) -> Sample:
    """Requests running, and a number that grows with every step of the engine (vLLM 0.32, 0.33 /metrics)."""
    return Sample(
        running=sum(float(value) for value in _RUNNING.findall(text)),
        progress=sum(float(value) for value in _PROGRESS.findall(text)),
    )


class HangWatch:
    """Says "hung" when work was there and nothing moved for `limit_seconds`."""

    def __init__(self, limit_seconds: float, now: float) -> None:
        self._limit_seconds = limit_seconds
        self._moved_at = now
        self._progress: float | None = None

    def hung(self, sample: Sample | None, now: float) -> str | None:
        """A sentence when hung. `sample` None: no answer, which counts like a step that does not end."""
        idle = sample is not None and sample.running == 0
        moved = sample is not None and sample.progress != self._progress
        if idle or moved:
            self._moved_at = now
        if sample is not None:
            self._progress = sample.progress
        stuck = now - self._moved_at
        if stuck < self._limit_seconds:
            return None
        if sample is None:
            return f"the engine did not answer for {stuck:.0f} s"
        return f"the engine has {sample.running:.0f} requests and made no token for {stuck:.0f} s"


def watch(
    pid: int, port: int, inbox: Inbox, stop: threading.Event, *, hang_seconds: float, standby: bool
) -> None:
    """Runs in a thread for one child until `stop`."""
    while not _healthy(port):
        if stop.wait(READY_POLL_SECONDS):
            return
    inbox.put(Ready(pid=pid))
    if standby and (seconds := warm_up(port)) is not None:
        emit("warmed-up", pid=pid, seconds=round(seconds, 3))
    if hang_seconds > 0:
        _watch_tokens(pid, port, hang_seconds, inbox, stop)


def _watch_tokens(pid: int, port: int, hang_seconds: float, inbox: Inbox, stop: threading.Event) -> None:
    hang = HangWatch(hang_seconds, time.monotonic())
    while not stop.wait(min(5.0, hang_seconds / 4)):
        if sentence := hang.hung(_sample(port), time.monotonic()):
            inbox.put(Hung(pid=pid, sentence=sentence))
            return


def _healthy(port: int) -> bool:
    try:
        return get_tcp(port, "/health", ASK_SECONDS).status == 200
    except NoAnswerError:
        return False


def _sample(port: int) -> Sample | None:
    try:
        return read_metrics(get_tcp(port, "/metrics", ASK_SECONDS).body.decode())
    except NoAnswerError:
        return None
