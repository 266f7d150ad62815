"""Moments become adjoining phases; what is not known is unattributed, never guessed."""

from __future__ import annotations

from warmops.evidence import LogLine, classify_start
from warmops.phases import phases_of

LOG = [
    (100.0, 'warmstack: {"event": "engine-start", "t": 100.0, "attempt": 1}'),
    (101.0, 'warmstack: {"event": "weight-cache-ready", "t": 101.0}'),
    (101.5, 'warmstack: {"event": "pids-moved", "t": 101.5}'),
    (101.6, 'warmstack: {"event": "serve", "t": 101.6, "pid": 5001}'),
    (108.0, "INFO [core.py:134] Initializing a V1 LLM engine (v0.32.0) with config: x"),
    (109.0, "INFO [cpu_model_runner.py:68] Starting to load model /hub/x..."),
    (109.5, "INFO [ipc_loader.py:284] Mapped 303 tensors from the weight cache daemon (zero_copy mode)"),
    (112.0, 'warmstack: {"event": "ready", "t": 112.0}'),
]
MEASURED = {"asked": 97.0, "stopped": 99.0, "container": 99.5, "first-token": 112.25}


def phases(log: list[tuple[float, str]], measured: dict[str, float]) -> list[tuple[str, float, float]]:
    found = phases_of(classify_start([LogLine(text=text, t=t) for t, text in log]), measured)
    return [(phase.name, round(phase.begin, 3), round(phase.seconds, 3)) for phase in found]


def test_a_whole_start() -> None:
    assert phases(LOG, MEASURED) == [
        ("stop old engine", 0.0, 2.0),
        ("container", 2.0, 0.5),
        ("entry point", 2.5, 0.5),
        ("wait for weight cache", 3.0, 1.0),
        ("move process ids", 4.0, 0.5),
        ("hand over", 4.5, 0.1),
        ("imports", 4.6, 6.4),
        ("set up worker", 11.0, 1.0),
        ("load or map weights", 12.0, 0.5),
        ("warm up and listen", 12.5, 2.5),
        ("first token", 15.0, 0.25),
    ]


def test_missing_moments_leave_an_unattributed_gap() -> None:
    without = [entry for entry in LOG if "Initializing" not in entry[1] and "Starting" not in entry[1]]
    assert ("unattributed", 4.6, 7.9) in phases(without, MEASURED)


def test_phases_add_up_to_the_whole() -> None:
    found = phases(LOG, MEASURED)
    assert round(sum(seconds for _, _, seconds in found), 3) == 15.25


def test_nothing_to_show() -> None:
    assert phases([], {"asked": 1.0}) == []
