"""Moments become adjoining phases; what is not known is unattributed, never guessed."""

from __future__ import annotations

import pytest

from warmops.evidence import LogLine, StartEvidence, classify_start
from warmops.moments import moments_in
from warmops.phases import phases_of, unattributed_share

LOG = [
    (100.0, 'warmstack: {"event": "engine-start", "t": 100.0, "attempt": 1}'),
    (101.0, 'warmstack: {"event": "weight-cache-ready", "t": 101.0}'),
    (101.2, 'warmstack: {"event": "nursery-ready", "t": 101.2, "waited_seconds": 0.2}'),
    (101.5, 'warmstack: {"event": "pids-moved", "t": 101.5}'),
    (101.6, 'warmstack: {"event": "serve", "t": 101.6, "pid": 5001, "nursery": true}'),
    (102.0, "(APIServer pid=959) INFO [api_utils.py:286] non-default args: {'model_tag': '/hub/x'}"),
    (103.0, "(APIServer pid=959) INFO [model.py:2152] Using max model len 2048"),
    (108.0, "INFO [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: x"),
    (108.5, "INFO [parallel_state.py:2350] rank 0 in world size 1 is assigned as DP"),
    (109.0, "(EngineCore pid=968) INFO [cpu_model_runner.py:68] Starting to load model /hub/x..."),
    (109.5, "INFO [ipc_loader.py:284] Mapped 303 tensors from the weight cache daemon (zero_copy mode)"),
    (109.6, "INFO [kv_cache_utils.py:2327] CPU KV cache size: 5,760 tokens, Maximum"),
    (110.0, "INFO [core.py:402] init engine (profile, create kv cache, warmup model) took 0.14 s"),
    (111.0, "(APIServer pid=959) INFO [entry.py:140] Starting vLLM server on http://0.0.0.0:8000"),
    (112.0, 'warmstack: {"event": "ready", "t": 112.0}'),
    (130.0, "(APIServer pid=959) INFO [x] GPU KV cache size: what comes after ready is not of the start"),
]  # fmt: skip
# A GPU's lines between weights and KV cache, vLLM 0.33.
COMPILED = [
    (109.55, "INFO [model_runner.py:428] Model loading took 0.0 GiB memory and 1.399290 seconds"),
    (109.56, "INFO [backends.py:1188] [backbone] Dynamo bytecode transform time: 3.21 s"),
    (109.57, "INFO [backends.py:311] Directly load the compiled graph(s) for compile range (1, 2"),
    (109.58, "INFO [backends.py:311] Directly load the compiled graph(s) for compile range (1, 2"),
    (109.59, "INFO [monitor.py:62] [backbone] torch.compile took 6.01 s in total"),
    (109.8, "INFO [model_runner.py:1163] Graph capturing finished in 7 secs, took 0.70 GiB"),
]  # fmt: skip
MEASURED = {"asked": 97.0, "stopped": 99.0, "container": 99.5, "first-token": 112.25}


def phases(log: list[tuple[float, str]], measured: dict[str, float]) -> list[tuple[str, float, float]]:
    found = phases_of(classify_start([LogLine(text=text, t=t) for t, text in log]), measured)
    return [(phase.name, round(phase.begin, 3), round(phase.seconds, 3)) for phase in found]


def test_a_whole_start() -> None:
    assert phases(LOG, MEASURED) == [
        ("old engine stops", 0.0, 2.0),
        ("container starts", 2.0, 0.5),
        ("entry point", 2.5, 0.5),
        ("wait for weight cache", 3.0, 1.0),
        ("wait for nursery", 4.0, 0.2),
        ("move process ids", 4.2, 0.3),
        ("begin process", 4.5, 0.1),
        ("imports", 4.6, 0.4),
        ("configuration", 5.0, 1.0),
        ("engine process", 6.0, 5.0),
        ("device", 11.0, 0.5),
        ("make model", 11.5, 0.5),
        ("weights", 12.0, 0.5),
        ("KV cache", 12.5, 0.1),
        ("warm up", 12.6, 0.4),
        ("server", 13.0, 1.0),
        ("listen", 14.0, 1.0),
        ("first token", 15.0, 0.25),
    ]


def test_a_compiled_start_on_a_gpu() -> None:
    names = [name for name, _, _ in phases(sorted(LOG + COMPILED), MEASURED)]
    begin = names.index("weights")
    assert names[begin : begin + 8] == [
        "weights",
        "finish model",
        "compile: trace",
        "compile: load",
        "compile: rest",
        "KV cache",
        "graph capture",
        "warm up",
    ]


def test_stock_vllm_has_no_entry_point_of_ours() -> None:
    lines = [(text, t) for t, text in LOG if not text.startswith("warmstack")]
    evidence = StartEvidence(outcome="unknown", moments=moments_in(lines))
    found = phases_of(evidence, {"stopped": 99.0, "container": 99.5, "first-token": 112.25})
    assert [phase.name for phase in found[:3]] == ["container starts", "imports", "configuration"]
    assert unattributed_share(found) == 0.0


def test_missing_moments_leave_an_unattributed_gap() -> None:
    without = [entry for entry in LOG if "Initializing" not in entry[1] and "Using max" not in entry[1]]
    assert ("unattributed", 5.0, 6.5) in phases(without, MEASURED)
    evidence = classify_start([LogLine(text=text, t=t) for t, text in without])
    assert unattributed_share(phases_of(evidence, MEASURED)) == pytest.approx(6.5 / 15.25)


def test_phases_add_up_to_the_whole() -> None:
    found = phases(LOG, MEASURED)
    assert round(sum(seconds for _, _, seconds in found), 3) == 15.25


def test_moments_out_of_order_are_clipped_and_never_inverted() -> None:
    measured = MEASURED | {"container": 100.4}  # Docker says it later than the engine's first mark
    found = phases(LOG, measured)
    assert ("entry point", 3.4, 0.0) in found
    assert round(sum(seconds for _, _, seconds in found), 3) == 15.25


def test_nothing_to_show() -> None:
    assert phases([], {"asked": 1.0}) == []
    assert unattributed_share(()) == 0.0
