"""One queue for everything that happens to a process: signals, a child's output, answers from helper threads.

In: events from signal handlers and threads. Out: one event at a time, to one loop.
Refuses to know: what an event means. Handlers only enqueue (SimpleQueue.put may interrupt itself).
"""

import queue
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class SignalCame:
    number: int


@dataclass(frozen=True, kw_only=True)
class Broken:
    """A helper thread failed. The loop raises `error`: a bug must not vanish with its thread."""

    error: Exception


class Inbox:
    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def put(self, event: Any) -> None:
        self._queue.put(event)

    def get(self, timeout_seconds: float) -> Any | None:
        """The next event, or None after `timeout_seconds`. Raises what a helper thread raised."""
        try:
            event = self._queue.get(timeout=max(0.0, timeout_seconds))
        except queue.Empty:
            return None
        if isinstance(event, Broken):
            raise event.error
        return event

    def listen(self, *numbers: signal.Signals) -> None:
        for number in numbers:
            signal.signal(number, lambda came, _frame: self.put(SignalCame(number=came)))

    def answer_of(self, work: Callable[[], Any]) -> None:
        """Run `work` in a thread that does not keep the process alive; its result, or what it raised, is
        put.
        """

        def run() -> None:
            try:
                self.put(work())
            except Exception as error:
                self.put(Broken(error=error))

        threading.Thread(target=run, daemon=True).start()
