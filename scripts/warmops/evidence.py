"""What happened in the engine's last start, judged from its log alone.

In: log lines of the engine's container with the time each was written. Out: a `StartEvidence`: hit, miss or
unknown, with the reason and the moments between which the start's phases lie. It refuses to know docker,
durations that somebody else measured, and whatever the weight cache says: the cache logs its "sent" line once
for any number of engine starts, so only the engine's own log counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from warmops.moments import moments_in

Outcome = Literal["hit", "miss", "unknown"]
AfterMiss = Literal["refused", "fallback"]

MARK_PREFIX = "warmstack: "
MISS_REASONS = ("unavailable", "mismatch", "released", "wrong_gpu", "pid_collision")

# Log lines of vLLM 0.32/0.33, vllm/model_executor/model_loader/weight_cache/ipc_loader.py.
_MAPPED = re.compile(r"Mapped (\d+) tensors from the weight cache daemon \((\w+) mode\)")
_FALLBACK = re.compile(r"falling back to disk loading")
_DISK_LOAD = re.compile(r"Loading weights took [\d.]+ seconds")
_REASON_LINES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"WeightCacheKey mismatch on fields"), "mismatch"),
    (re.compile(r"Weight cache role mismatch"), "mismatch"),
    (re.compile(r"Weights were released"), "released"),
    (re.compile(r"Daemon GPU \S+ != engine GPU"), "wrong_gpu"),
    (re.compile(r"invalid device context"), "pid_collision"),
    (re.compile(r"WeightCacheUnavailableError|Weight cache unusable"), "unavailable"),
)


@dataclass(frozen=True, kw_only=True)
class LogLine:
    """One line of a container's log; `t` is the unix second at which Docker got it, None if not known."""

    text: str
    t: float | None = None


@dataclass(frozen=True, kw_only=True)
class Mark:
    """One `warmstack: {...}` line of the engine's entry point."""

    event: str
    t: float
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class StartEvidence:
    """What the log says of one engine start. `mapped_bytes` is what this engine's ranks mapped, in bytes."""

    outcome: Outcome
    reason: str | None = None
    after_miss: AfterMiss | None = None
    sentence: str | None = None
    attempt: int | None = None
    tensors: int | None = None
    mapped_bytes: int | None = None
    mapped_seconds: float | None = None
    marks: tuple[Mark, ...] = ()
    moments: Mapping[str, float] = field(default_factory=dict)

    def mark(self, event: str) -> Mark | None:
        """The first mark of that name in this start, or None."""
        return next((mark for mark in self.marks if mark.event == event), None)

    @property
    def ready(self) -> bool:
        return self.mark("ready") is not None


def parse_mark(text: str) -> Mark | None:
    """The mark in a log line, or None: a line that only looks like one is not evidence."""
    start = text.find(MARK_PREFIX + "{")
    if start < 0:
        return None
    try:
        value = json.loads(text[start + len(MARK_PREFIX) :])
        event, moment = value.pop("event"), float(value.pop("t"))
    except (ValueError, KeyError, TypeError):
        return None
    return Mark(event=str(event), t=moment, fields=value)


def last_start(lines: Sequence[LogLine]) -> Sequence[LogLine]:
    """What follows the last `engine-start` mark, that mark included; empty when there is none."""
    for index in range(len(lines) - 1, -1, -1):
        mark = parse_mark(lines[index].text)
        if mark is not None and mark.event == "engine-start":
            return lines[index:]
    return []


def until_ready(lines: Sequence[LogLine]) -> list[tuple[str, float | None]]:
    """Text and time of the lines that belong to the start itself."""
    found = []
    for line in lines:
        mark = parse_mark(line.text)
        if mark is not None and mark.event == "ready":
            break
        found.append((line.text, line.t))
    return found


def last_crash(lines: Iterable[LogLine]) -> Mark | None:
    """The last `engine-exit` mark of any start in `lines`, or None."""
    marks = [mark for line in lines if (mark := parse_mark(line.text)) is not None]
    return next((mark for mark in reversed(marks) if mark.event == "engine-exit"), None)


def has_nursery(lines: Iterable[LogLine]) -> bool:
    """Whether the engine's container keeps a nursery, alive or not."""
    return any(mark.event == "nursery" for line in lines if (mark := parse_mark(line.text)) is not None)


def nursery_pid(lines: Iterable[LogLine]) -> int | None:
    """Process id, inside the container, of the nursery that lives; None when there is none."""
    marks = [mark for line in lines if (mark := parse_mark(line.text)) is not None]
    last = next((mark for mark in reversed(marks) if mark.event == "nursery"), None)
    if last is None or last.fields.get("state") in ("off", "gone"):
        return None
    return _as_int(last.fields.get("pid"))


def start_failure(lines: Iterable[LogLine]) -> str | None:
    """Why a start failed, in a sentence, from the first mark that says so; None while none does.

    Meant for a container that was just made: the entry point starts again, and a roll does not wait for that.
    """
    for line in lines:
        mark = parse_mark(line.text)
        if mark is None:
            continue
        sentence = str(mark.fields.get("sentence") or mark.fields.get("error") or "no reason given")
        if mark.event == "miss":
            return f"missed the weight cache ({mark.fields.get('reason')}): {sentence}"
        if mark.event in ("engine-exit", "gave-up"):
            return sentence
    return None


def classify_start(lines: Iterable[LogLine], *, ranks: int = 1) -> StartEvidence:
    """Judge the last start in `lines`, which begin at the container's last StartedAt.

    A hit needs a zero-copy "Mapped" line of every one of `ranks` ranks and no sign of a fallback.
    Anything less is a miss with a reason, or `unknown` with what is missing: never a hit by default.
    """
    start = last_start(list(lines))
    if not start:
        return StartEvidence(outcome="unknown", reason="the log has no engine-start mark")
    marks = tuple(mark for line in start if (mark := parse_mark(line.text)) is not None)
    facts = _Facts.of(start)
    outcome, reason, after_miss = _judge(facts, marks, ranks)
    sentence = next((str(m.fields["sentence"]) for m in reversed(marks) if m.fields.get("sentence")), None)
    mapped = [mark for mark in marks if mark.event == "mapped"]
    return StartEvidence(
        outcome=outcome,
        reason=reason,
        after_miss=after_miss,
        sentence=sentence,
        attempt=_as_int(marks[0].fields.get("attempt")),
        tensors=facts.tensors,
        mapped_bytes=_mapped_bytes(marks, mapped) if outcome == "hit" else None,
        mapped_seconds=max((float(m.fields.get("seconds", 0)) for m in mapped), default=None),
        marks=marks,
        moments=facts.moments,
    )


def _mapped_bytes(marks: Sequence[Mark], mapped: Sequence[Mark]) -> int | None:
    """What our loader counted; vLLM's own loader maps all that the weight cache held and counts nothing."""
    if mapped:
        return sum(int(mark.fields.get("bytes", 0)) for mark in mapped)
    held = [mark.fields.get("bytes_held") for mark in marks if mark.event == "weight-cache-ready"]
    return _as_int(held[-1]) if held else None


@dataclass(frozen=True, kw_only=True)
class _Facts:
    """The lines of one start, reduced to what the judgement asks."""

    zero_copy_lines: int
    other_modes: tuple[str, ...]
    tensors: int | None
    fallback: bool
    disk_load: bool
    reason: str | None
    moments: Mapping[str, float]

    @classmethod
    def of(cls, lines: Sequence[LogLine]) -> _Facts:
        texts = [line.text for line in lines if parse_mark(line.text) is None]
        mapped = [found for text in texts if (found := _MAPPED.search(text))]
        reasons = (name for pattern, name in _REASON_LINES if any(pattern.search(text) for text in texts))
        return cls(
            zero_copy_lines=sum(1 for found in mapped if found[2] == "zero_copy"),
            other_modes=tuple(found[2] for found in mapped if found[2] != "zero_copy"),
            tensors=sum(int(found[1]) for found in mapped) if mapped else None,
            fallback=any(_FALLBACK.search(text) for text in texts),
            disk_load=any(_DISK_LOAD.search(text) for text in texts),
            reason=next(reasons, None),
            moments=moments_in(until_ready(lines)),
        )


def _judge(facts: _Facts, marks: Sequence[Mark], ranks: int) -> tuple[Outcome, str | None, AfterMiss | None]:
    miss = next((mark for mark in reversed(marks) if mark.event == "miss"), None)
    if miss is not None:
        fell_back = facts.fallback or miss.fields.get("outcome") == "fallback"
        return "miss", str(miss.fields.get("reason", "unavailable")), "fallback" if fell_back else "refused"
    if facts.fallback:
        return "miss", facts.reason or "unavailable", "fallback"
    if facts.disk_load:
        return "unknown", "weights were read from disk and the weight cache was not asked", None
    if facts.other_modes:
        return "unknown", f"mapped in {facts.other_modes[0]} mode, which empties the weight cache", None
    if facts.zero_copy_lines >= ranks:
        return "hit", None, None
    if facts.reason is not None:
        return "miss", facts.reason, "refused"
    if facts.zero_copy_lines:
        return "unknown", f"{facts.zero_copy_lines} of {ranks} ranks mapped their weights", None
    return "unknown", "the log has no line about the weight cache since the engine's last start", None


def _as_int(value: object) -> int | None:
    return value if isinstance(value, int) else None
