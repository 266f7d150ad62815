"""What the relay counts, and its text for Prometheus.

In: counts, and what the engines and the waiting room show at the moment. Out: the exposition format 0.0.4.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

_BOUNDS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)


@dataclass(kw_only=True)
class Counts:
    """Everything since the start of the gateway."""

    requests: Counter[str] = field(default_factory=Counter)  # by outcome: answered, refused, cut, gone
    sent_again: int = 0
    cut: int = 0
    held_seconds: float = 0.0
    held: list[int] = field(default_factory=lambda: [0] * (len(_BOUNDS) + 1))  # by bucket

    def was_held(self, seconds: float) -> None:
        """A request that found no engine ready got one, or gave up, after so long."""
        self.held[bisect_left(_BOUNDS, seconds)] += 1
        self.held_seconds += seconds


@dataclass(frozen=True, kw_only=True)
class EngineNow:
    name: str
    ready: bool
    in_flight: int


def metrics_text(counts: Counts, engines: Iterable[EngineNow], *, waiting: int, held_bytes: int) -> str:
    lines: list[str] = []

    def metric(name: str, kind: str, text: str, samples: Iterable[tuple[str, float]]) -> None:
        full = f"warmstack_gateway_{name}"
        lines.extend((f"# HELP {full} {text}", f"# TYPE {full} {kind}"))
        lines.extend(f"{full}{suffix} {value:g}" for suffix, value in samples)

    now = list(engines)
    outcomes = {outcome: counts.requests[outcome] for outcome in ("answered", "cut", "gone", "refused")}
    metric(
        "requests_total",
        "counter",
        "Requests below /v1 that have ended, by outcome.",
        ((f'{{outcome="{outcome}"}}', count) for outcome, count in outcomes.items()),
    )
    metric("sent_again_total", "counter", "Requests sent a second time.", [("", counts.sent_again)])
    metric("cut_total", "counter", "Answers that an engine ended in their middle.", [("", counts.cut)])
    metric("hold_seconds", "histogram", "Waits for an engine, where there were any.", _histogram(counts))
    metric("waiting", "gauge", "Requests that wait for an engine.", [("", waiting)])
    metric("held_bytes", "gauge", "Bytes of request bodies in memory.", [("", held_bytes)])
    metric(
        "in_flight",
        "gauge",
        "Requests sent to an engine and not finished.",
        ((f'{{engine="{one.name}"}}', one.in_flight) for one in now),
    )
    metric(
        "engine_ready",
        "gauge",
        "1 when the engine is ready.",
        ((f'{{engine="{one.name}"}}', int(one.ready)) for one in now),
    )
    return "\n".join(lines) + "\n"


def _histogram(counts: Counts) -> Iterator[tuple[str, float]]:
    total = 0
    for bound, count in zip((*map(str, _BOUNDS), "+Inf"), counts.held, strict=True):
        total += count
        yield f'_bucket{{le="{bound}"}}', total
    yield "_sum", counts.held_seconds
    yield "_count", total
