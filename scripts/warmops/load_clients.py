"""Clients that load the gateway: each a thread that has one request at a time.

In: where to ask, and the shape of the load. Out: a record of every request. It refuses to know of containers
and events. No load tool is used because none that was looked at tells these failures apart: `vllm bench
serve` (0.33) counts a stream that ends early or in an error event as a success, k6 and oha read no events of
a stream, locust and guidellm need many more packages than this program has.
"""

from __future__ import annotations

import threading
from collections import Counter

from warmops.load_plan import PROMPTS, LoadShape, Outcome, Request
from warmops.load_request import Asked, now, send

# A client that was refused waits so long, as programs do: else a dead gateway is asked thousands of times a
# second.
_AFTER_FAILURE_SECONDS = 0.2


class Client(threading.Thread):
    """One client: asks, waits for the end, asks again, until it is told to stop.

    `beats` gives the moments of a fixed rate (first moment, seconds between two of them), unix seconds.
    """

    def __init__(
        self, number: int, asked: Asked, *, streaming: bool, beats: tuple[float, float] | None, crowd: _Crowd
    ) -> None:
        super().__init__(name=f"client-{number}", daemon=True)
        self._number, self._asked, self._streaming = number, asked, streaming
        self._beats, self._crowd = beats, crowd
        self.error: BaseException | None = None
        self.unsent = 0

    def run(self) -> None:
        try:
            self._ask_until_stopped()
        except BaseException as error:  # a bug: told by whoever joins this thread
            self.error = error

    def _ask_until_stopped(self) -> None:
        turn = 0
        while True:
            intended_at = self._intended(turn)
            if self._crowd.stop.wait(max(0.0, intended_at - now())):
                self.unsent = max(0, self._due() - turn)
                return
            request = send(
                self._asked,
                prompt=PROMPTS[(self._number + turn) % len(PROMPTS)],
                streaming=self._streaming,
                client=self._number,
                intended_at=intended_at if self._beats is not None else now(),
            )
            self._crowd.record(request)
            turn += 1
            if request.outcome is Outcome.FAILED:
                self._crowd.stop.wait(_AFTER_FAILURE_SECONDS)

    def _intended(self, turn: int) -> float:
        return now() if self._beats is None else self._beats[0] + turn * self._beats[1]

    def _due(self) -> int:
        """How many requests of a fixed rate should have been sent by now."""
        if self._beats is None:
            return 0
        first, between = self._beats
        return max(0, int((now() - first) // between) + 1)


class _Crowd:
    """What the clients share: the sign to stop and the list of records."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._lock = threading.Lock()
        self._requests: list[Request] = []
        self._counts: Counter[Outcome] = Counter()
        self._answered: dict[str, float] = {}

    def record(self, request: Request) -> None:
        with self._lock:
            self._requests.append(request)
            self._counts[request.outcome] += 1
            if request.outcome is Outcome.ANSWERED:
                self._answered[request.prompt] = request.sent_at

    def counts(self) -> Counter[Outcome]:
        with self._lock:
            return Counter(self._counts)

    def answered_since(self, moment: float) -> bool:
        with self._lock:
            return sum(sent_at > moment for sent_at in self._answered.values()) == len(PROMPTS)

    def requests(self) -> tuple[Request, ...]:
        with self._lock:
            return tuple(sorted(self._requests, key=lambda request: request.sent_at))


class Load:
    """All clients together, from `start` to `stop`. The first of them stream, the others do not."""

    def __init__(self, asked: Asked, shape: LoadShape) -> None:
        self._crowd = _Crowd()
        begin = now()
        self._clients = [
            Client(
                number,
                asked,
                streaming=number < shape.streaming,
                beats=_beats(shape, number, begin),
                crowd=self._crowd,
            )
            for number in range(shape.clients)
        ]

    def start(self) -> None:
        for client in self._clients:
            client.start()

    def stop(self) -> tuple[tuple[Request, ...], int]:
        """Begin no request any more and wait for those that run: all records, and how many stayed unsent."""
        self._crowd.stop.set()
        for client in self._clients:
            client.join()
            if client.error is not None:
                raise client.error
        return self._crowd.requests(), sum(client.unsent for client in self._clients)

    def counts(self) -> Counter[Outcome]:
        """How many requests have ended so far, by outcome."""
        return self._crowd.counts()

    def every_prompt_answered_since(self, moment: float) -> bool:
        """Whether each prompt has been sent and answered after that unix second."""
        return self._crowd.answered_since(moment)


def _beats(shape: LoadShape, number: int, begin: float) -> tuple[float, float] | None:
    """The moments of one client: all clients take turns, so that their requests are spread evenly."""
    if shape.rate is None:
        return None
    return begin + number / shape.rate, shape.clients / shape.rate
