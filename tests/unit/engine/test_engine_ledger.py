"""The ledger of PID 1: phases of the last start, the same as the host finds in the log, and as metrics."""

from __future__ import annotations

from warmops.evidence import LogLine, classify_start
from warmops.phases import phases_of
from warmstack_engine.ledger import Ledger, metrics_of

LINES = [
    (101.0, "INFO [api_utils.py:286] non-default args: {}"),
    (101.5, "INFO [model.py:2152] Using max model len 2048"),
    (104.0, "INFO [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: x"),
    (104.5, "INFO [parallel_state.py:2350] rank 0 in world size 1 is assigned as DP rank 0"),
    (105.0, "INFO [ipc_loader.py:284] Mapped 303 tensors from the weight cache daemon (zero_copy mode)"),
    (105.1, "INFO [ipc_loader.py:284] Mapped 303 tensors from the weight cache daemon (zero_copy mode)"),
    (105.2, "INFO [kv_cache_utils.py:2327] CPU KV cache size: 5,760 tokens"),
    (105.3, "INFO [core.py:402] init engine (profile, create kv cache, warmup model) took 0.14 s"),
    (106.0, "INFO [entry.py:140] Starting vLLM server on http://0.0.0.0:8000"),
]
MARKS = [(100.0, "engine-start"), (100.1, "weight-cache-ready"), (100.2, "pids-moved"), (100.3, "serve")]


def filled(lines: list[tuple[float, str]] = LINES) -> Ledger:
    ledger = Ledger()
    for t, event in MARKS:
        ledger.mark(event, t)
    for t, text in lines:
        ledger.line(text, t)
    ledger.mark("ready", 107.0)
    return ledger


def test_it_finds_what_the_host_finds_in_the_log() -> None:
    log = [
        *(LogLine(text=f'warmstack: {{"event": "{event}", "t": {t}}}', t=t) for t, event in MARKS),
        *(LogLine(text=text, t=t) for t, text in LINES),
        LogLine(text='warmstack: {"event": "ready", "t": 107.0}', t=107.0),
    ]
    outside = [(phase.name, round(phase.seconds, 6)) for phase in phases_of(classify_start(log), {})]
    assert [(name, round(seconds, 6)) for name, seconds in filled().phases()] == outside
    assert ("weights", 0.6) in outside


def test_a_gap_is_unattributed_as_outside() -> None:
    without = [line for line in LINES if "Initializing" not in line[1] and "Starting" not in line[1]]
    names = [name for name, _ in filled(without).phases()]
    assert names.count("unattributed") == 2
    assert 'phase="unattributed"} 4.700' in metrics_of(filled(without), nursery="ready")


def test_what_comes_after_ready_is_of_no_start_and_a_new_start_is_a_new_page() -> None:
    ledger = filled()
    before = ledger.phases()
    ledger.line("INFO Mapped 303 tensors from the weight cache daemon (zero_copy mode)", 200.0)
    assert ledger.phases() == before
    ledger.mark("engine-exit", 201.0)
    ledger.mark("engine-start", 202.0)
    assert ledger.phases() == []
    assert (ledger.starts, ledger.crashes, ledger.ready) == (2, 1, False)


def test_metrics() -> None:
    text = metrics_of(filled(), nursery="importing")
    assert 'warmstack_engine_start_phase_seconds{phase="weights"} 0.600' in text
    assert "\nwarmstack_engine_start_seconds 7.000\n" in text
    assert "\nwarmstack_engine_starts_total 1\n" in text
    assert 'warmstack_engine_nursery{state="importing"} 1' in text
