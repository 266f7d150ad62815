"""`judge`: each expectation has an observation that fulfils it and one that does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from warmops.drill_plan import DRILLS, CacheView, Footprint, Observation, judge
from warmops.evidence import Mark, StartEvidence

HIT = StartEvidence(outcome="hit")
VIEW = CacheView(container_id="wc", started_at=1.0, rank_pids=(412,), state="held", identity="a" * 64)
RELOADED = replace(VIEW, rank_pids=(900,))
FOOTPRINT = Footprint(shm_bytes=269060552, open_files=40, daemon_bytes=1_500_000_000)
GOOD = Observation(
    evidence=HIT,
    answer_before="Paris.",
    answer_after="Paris.",
    cache_before=VIEW,
    cache_after=VIEW,
    footprint_before=FOOTPRINT,
    footprint_after=FOOTPRINT,
    engine_identity="a" * 64,
)


def failed(name: str, seen: Observation) -> list[str]:
    return [finding.name for finding in judge(DRILLS[name], seen) if not finding.ok]


@pytest.mark.parametrize(
    "name", ["engine-restart", "container-restart", "engine-recreate", "engine-kill", "nursery-kill"]
)
def test_a_good_recycle_passes(name: str) -> None:
    assert failed(name, GOOD) == []


def test_a_good_cold_start_passes() -> None:
    new = replace(VIEW, container_id="new", started_at=9.0, rank_pids=(400,))
    assert failed("cold-start", replace(GOOD, cache_after=new)) == []
    assert failed("cold-start", GOOD) == ["weight cache"]


def test_a_good_daemon_kill_passes() -> None:
    seen = replace(GOOD, cache_after=RELOADED, degraded_seen=True, answered_while_degraded=True)
    assert failed("daemon-kill", seen) == []
    assert failed("daemon-kill", replace(seen, answered_while_degraded=None)) == ["served while degraded"]
    assert failed("daemon-kill", replace(seen, cache_after=VIEW)) == ["weight cache"]


@pytest.mark.parametrize(
    ("change", "names"),
    [
        # Served by the default load format: right answers, no hit evidence, and the drill fails.
        ({"evidence": StartEvidence(outcome="unknown", reason="no line")}, ["engine start"]),
        ({"evidence": StartEvidence(outcome="miss", reason="mismatch")}, ["engine start"]),
        ({"answer_after": "Berlin."}, ["greedy answer"]),
        ({"answer_before": None, "answer_after": None}, ["greedy answer"]),
        ({"cache_after": RELOADED}, ["weight cache"]),
        ({"cache_after": replace(VIEW, state="loading")}, ["weight cache"]),
        ({"cache_after": None}, ["weight cache", "identity"]),
        ({"engine_identity": "b" * 64}, ["identity"]),
        ({"engine_identity": None}, ["identity"]),
        ({"surviving_pids": (77,)}, ["old processes"]),
        ({"degraded_seen": True}, ["degraded"]),
        ({"footprint_after": replace(FOOTPRINT, shm_bytes=269060553)}, ["/dev/shm"]),
        ({"footprint_after": replace(FOOTPRINT, open_files=45)}, ["open files"]),
        ({"footprint_after": replace(FOOTPRINT, daemon_bytes=1_600_000_000)}, ["weight cache memory"]),
        ({"footprint_after": Footprint()}, ["/dev/shm", "open files", "weight cache memory"]),
        ({"error": "the engine did not become ready"}, ["steps"]),
    ],
)  # fmt: skip
def test_each_expectation_can_fail(change: dict[str, object], names: list[str]) -> None:
    """Case 28: growth of shared memory, of open files and of the daemon fails a drill."""
    assert failed("engine-restart", replace(GOOD, **change)) == names  # type: ignore[arg-type]


def test_growth_is_told_in_units_that_people_read() -> None:
    after = replace(FOOTPRINT, open_files=41, daemon_bytes=FOOTPRINT.daemon_bytes + 100 * 1024**2)
    findings = judge(DRILLS["engine-restart"], replace(GOOD, footprint_after=after))
    told = {one.name: (one.expected, one.found) for one in findings}
    assert told["weight cache memory"] == ("grows by at most 64 MiB", "+100 MiB")
    assert told["/dev/shm"] == ("grows by at most 0 bytes", "0 bytes")
    assert told["open files"][1] == "+1 file"


@pytest.mark.parametrize(
    ("name", "forked", "found"),
    [
        ("engine-restart", True, []),
        ("engine-restart", False, ["engine process"]),
        ("engine-kill", False, ["engine process"]),
        ("nursery-kill", False, []),
        ("nursery-kill", True, ["engine process"]),
        ("engine-restart", None, ["engine process"]),
    ],
)
def test_where_the_engines_process_came_from(name: str, forked: bool | None, found: list[str]) -> None:
    marks = () if forked is None else (Mark(event="serve", t=1.0, fields={"pid": 7, "nursery": forked}),)
    seen = replace(GOOD, evidence=replace(HIT, marks=marks))
    assert failed(name, replace(seen, has_nursery=True)) == found
    assert failed(name, seen) == [], "a stack without a nursery is not judged by it"
