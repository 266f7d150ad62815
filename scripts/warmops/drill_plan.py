"""The drills: what each does to a running stack and what must be so afterwards, as data, and the judgement.

In: what was observed during one repetition. Out: findings, each with what was expected and what was found.
It refuses to know how a step is carried out and how an observation is made; a duration decides nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from warmops.evidence import StartEvidence
from warmops.units import counted, size

MIB = 1024 * 1024


class Step(StrEnum):
    """What is done to the stack, in order. Every drill's last engine start is the one that is judged."""

    STOP_ALL = "stop the engine, then the weight cache, and remove both"
    START_ALL = "start the weight cache and the engine"
    STOP_ENGINE = "stop the engine"
    START_ENGINE = "start the engine"
    RECREATE_ENGINE = "remove the engine's container and make a new one"
    RENEW_ENGINE = "ask the engine's container for a new engine process"
    KILL_ENGINE = "SIGKILL every process of vLLM in the engine's container, by id"
    KILL_NURSERY = "SIGKILL the process that engines are forked from, by id"
    AWAIT_ENGINE = "wait until the engine is back by itself"
    KILL_PRELOAD = "SIGKILL the weight cache's loading process, by id"
    ASK_WHILE_DEGRADED = "ask the engine while the weight cache holds nothing"
    AWAIT_HELD = "wait until the weight cache holds the weights again"


class CacheFate(StrEnum):
    """What must have become of the weight cache."""

    UNTOUCHED = "same container, same processes, same weights"
    RELOADED = "same container, weights loaded again by new processes"
    REPLACED = "new container, weights loaded from disk"


class Origin(StrEnum):
    """Where the engine's process came from. Judged only in a stack that has a nursery."""

    NURSERY = "forked from the nursery"
    COMMAND = "started from the command line"


@dataclass(frozen=True, kw_only=True)
class GrowthLimits:
    """How much one repetition may leave behind: bytes of /dev/shm and memory, file descriptors as a count.

    The memory limit is wide enough for the pages that a Python process touches late, and far below the
    smallest model's weights, so that a copy left behind is seen.
    """

    shm_bytes: int = 0
    open_files: int = 4
    daemon_bytes: int = 64 * MIB


@dataclass(frozen=True, kw_only=True)
class Drill:
    """A rehearsed failure with its declared expectation."""

    name: str
    purpose: str
    steps: tuple[Step, ...]
    cache: CacheFate
    outcome: str = "hit"
    degraded_allowed: bool = False
    limits: GrowthLimits = field(default_factory=GrowthLimits)
    origin: Origin | None = None


# SIGKILL leaves the semaphores that only a living process removes: measured 16 KiB of /dev/shm on the CPU
# platform and 180 KiB on an H200 (vLLM 0.32, 0.33). A segment of weights left behind is far larger.
AFTER_SIGKILL = GrowthLimits(shm_bytes=MIB)


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """What the weight cache uses at one moment. None where the host cannot tell."""

    shm_bytes: int | None = None
    open_files: int | None = None
    daemon_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class CacheView:
    """The weight cache as seen at one moment: its container, when that started, and who holds the weights."""

    container_id: str
    started_at: float
    rank_pids: tuple[int, ...]
    state: str
    identity: str


@dataclass(frozen=True, kw_only=True)
class Observation:
    """All that one repetition showed. Seconds are reported, never judged."""

    evidence: StartEvidence
    answer_before: str | None
    answer_after: str | None
    cache_before: CacheView | None
    cache_after: CacheView | None
    footprint_before: Footprint
    footprint_after: Footprint
    degraded_seen: bool = False
    answered_while_degraded: bool | None = None
    surviving_pids: tuple[int, ...] = ()
    engine_identity: str | None = None
    has_nursery: bool = False
    seconds: Mapping[str, float] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class Finding:
    name: str
    expected: str
    found: str
    ok: bool


DRILLS: Mapping[str, Drill] = MappingProxyType(
    {
        drill.name: drill
        for drill in (
            Drill(
                name="cold-start",
                purpose="no weights held: the weight cache loads from disk, the engine waits for it and maps",
                steps=(Step.STOP_ALL, Step.START_ALL),
                cache=CacheFate.REPLACED,
            ),
            Drill(
                name="engine-restart",
                purpose="a new engine process in the old container, as `make restart` does it",
                steps=(Step.RENEW_ENGINE, Step.AWAIT_ENGINE),
                cache=CacheFate.UNTOUCHED,
                origin=Origin.NURSERY,
            ),
            Drill(
                name="container-restart",
                purpose="the engine's container is stopped and started",
                steps=(Step.STOP_ENGINE, Step.START_ENGINE),
                cache=CacheFate.UNTOUCHED,
                origin=Origin.NURSERY,
            ),
            Drill(
                name="engine-recreate",
                purpose="the engine's container is replaced, as after a changed setting",
                steps=(Step.STOP_ENGINE, Step.RECREATE_ENGINE),
                cache=CacheFate.UNTOUCHED,
                origin=Origin.NURSERY,
            ),
            Drill(
                name="engine-kill",
                purpose="the engine's processes die at once, as from the OOM killer; it comes back by itself",
                steps=(Step.KILL_ENGINE, Step.AWAIT_ENGINE),
                cache=CacheFate.UNTOUCHED,
                limits=AFTER_SIGKILL,
                origin=Origin.NURSERY,
            ),
            Drill(
                name="nursery-kill",
                purpose="the process that engines are forked from is gone: the next start does without it",
                steps=(Step.KILL_NURSERY, Step.RENEW_ENGINE, Step.AWAIT_ENGINE),
                cache=CacheFate.UNTOUCHED,
                origin=Origin.COMMAND,
            ),
            Drill(
                name="daemon-kill",
                purpose="the process that holds the weights dies; the engine serves on, the next start maps",
                steps=(
                    Step.KILL_PRELOAD,
                    Step.ASK_WHILE_DEGRADED,
                    Step.AWAIT_HELD,
                    Step.STOP_ENGINE,
                    Step.START_ENGINE,
                ),
                cache=CacheFate.RELOADED,
                degraded_allowed=True,
                limits=AFTER_SIGKILL,
            ),
        )
    }
)


def judge(drill: Drill, seen: Observation) -> tuple[Finding, ...]:
    """Every expectation of the drill against what was seen. A figure that is missing is not fulfilled."""
    findings = [_outcome(drill, seen), _answer(seen), _cache(drill, seen), _identity(seen)]
    findings.append(
        Finding(
            name="old processes",
            expected="gone",
            found=f"still there: {list(seen.surviving_pids)}" if seen.surviving_pids else "gone",
            ok=not seen.surviving_pids,
        )
    )
    if not drill.degraded_allowed:
        found = "seen" if seen.degraded_seen else "not seen"
        findings.append(Finding(name="degraded", expected="not seen", found=found, ok=not seen.degraded_seen))
    if Step.ASK_WHILE_DEGRADED in drill.steps:
        answered = {True: "yes", False: "no", None: "not asked"}[seen.answered_while_degraded]
        ok = seen.answered_while_degraded is True
        findings.append(Finding(name="served while degraded", expected="yes", found=answered, ok=ok))
    if seen.has_nursery and drill.origin is not None:
        findings.append(_origin(drill.origin, seen.evidence))
    if drill.cache is not CacheFate.REPLACED:
        findings += _growth(drill.limits, seen)
    if seen.error is not None:
        findings.append(Finding(name="steps", expected="all carried out", found=seen.error, ok=False))
    return tuple(findings)


def _outcome(drill: Drill, seen: Observation) -> Finding:
    evidence = seen.evidence
    found = evidence.outcome + (f" ({evidence.reason})" if evidence.reason else "")
    return Finding(
        name="engine start", expected=drill.outcome, found=found, ok=evidence.outcome == drill.outcome
    )


def _origin(expected: Origin, evidence: StartEvidence) -> Finding:
    serve = evidence.mark("serve")
    found = "no process was started"
    if serve is not None:
        found = (Origin.NURSERY if serve.fields.get("nursery") else Origin.COMMAND).value
    return Finding(name="engine process", expected=expected.value, found=found, ok=found == expected.value)


def _answer(seen: Observation) -> Finding:
    same = seen.answer_after is not None and seen.answer_after == seen.answer_before
    found = "same" if same else f"{seen.answer_before!r} became {seen.answer_after!r}"
    return Finding(name="greedy answer", expected="same", found=found, ok=same)


def _cache(drill: Drill, seen: Observation) -> Finding:
    before, after = seen.cache_before, seen.cache_after
    if before is None or after is None:
        return Finding(name="weight cache", expected=drill.cache.value, found="not seen", ok=False)
    if after.state != "held":
        found = f"state {after.state}"
        return Finding(name="weight cache", expected=drill.cache.value, found=found, ok=False)
    if (before.container_id, before.started_at) != (after.container_id, after.started_at):
        fate = CacheFate.REPLACED
    elif before.rank_pids != after.rank_pids:
        fate = CacheFate.RELOADED
    else:
        fate = CacheFate.UNTOUCHED
    return Finding(name="weight cache", expected=drill.cache.value, found=fate.value, ok=fate is drill.cache)


def _identity(seen: Observation) -> Finding:
    held = seen.cache_after.identity if seen.cache_after is not None else None
    same = held is not None and held == seen.engine_identity
    found = "equal" if same else f"engine {_short(seen.engine_identity)}, weight cache {_short(held)}"
    return Finding(name="identity", expected="equal", found=found, ok=same)


def _growth(limits: GrowthLimits, seen: Observation) -> list[Finding]:
    before, after = seen.footprint_before, seen.footprint_after
    return [
        _grown("/dev/shm", before.shm_bytes, after.shm_bytes, limits.shm_bytes, size),
        _grown("open files", before.open_files, after.open_files, limits.open_files, _files),
        _grown("weight cache memory", before.daemon_bytes, after.daemon_bytes, limits.daemon_bytes, size),
    ]


def _files(count: int) -> str:
    return counted(count, "file")


def _grown(
    name: str, before: int | None, after: int | None, limit: int, shown: Callable[[int], str]
) -> Finding:
    expected = f"grows by at most {shown(limit)}"
    if before is None or after is None:
        return Finding(name=name, expected=expected, found="could not be measured", ok=False)
    grown = after - before
    sign = "+" if grown > 0 else ""
    return Finding(name=name, expected=expected, found=f"{sign}{shown(grown)}", ok=grown <= limit)


def _short(identity: str | None) -> str:
    return identity[:16] if identity else "unknown"
