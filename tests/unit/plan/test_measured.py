"""The memory plan against what the driver counted on an H200: docs/measurements/h200-2026-11-30.

The constants were fitted to these very figures, so this holds the plan to them and proves nothing beyond.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from support.models import locked_model, public_model
from support.wishes import CUDA, REPOSITORY, plan_of
from warmplan.constants import MIB
from warmplan.lock import LockedModel
from warmplan.plan import Plan

FIGURES = REPOSITORY / "docs/measurements/h200-2026-11-30"
EIGHT = public_model("qwen3-8b").facts
SMALL = replace(
    EIGHT,
    hidden_size=1024,
    intermediate_size=3072,
    num_hidden_layers=28,
    num_attention_heads=16,
    num_key_value_heads=8,
    tie_word_embeddings=False,
)
# As the session did: an H200 (143 771 MiB), other settings at their defaults.
WISH = {"gpu.memory_gib": "140.4", "engine.max_model_len": "8192", "engine.roll": "false"}
LANES = {
    "small": (SMALL, 1_503_264_768, {"engine.kv_cache.gib": "4"}),
    "eight": (EIGHT, 16_381_470_720, {"engine.kv_cache.gib": "24"}),
    "tp2": (
        EIGHT,
        16_381_470_720,
        {"engine.kv_cache.gib": "24", "parallel.tensor": "2", "gpu.count": "2"},
    ),
}


def planned(lane: str) -> Plan:
    facts, size, wish = LANES[lane]
    model: LockedModel = replace(locked_model("qwen3-8b"), facts=facts, weight_bytes=size)
    return plan_of(CUDA, overrides={**WISH, **wish}, model=model)


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("step", ["memory", "memory-warm"])
def test_each_process_and_their_sum_within_three_percent(lane: str, step: str) -> None:
    parts = {part.key: part.bytes for part in planned(lane).budget.parts if part.key != "headroom"}
    cache = parts["weights"] + parts["tables"] + parts["weight_cache_context"]
    expected = {
        "weight cache": cache,
        "engine": sum(parts.values()) - cache,
        "sum": sum(parts.values()),
    }
    rows = json.loads((FIGURES / f"{lane}.json").read_text())[step]["rows"]
    assert {row["what"] for row in rows} == expected.keys()
    for row in rows:
        off = expected[row["what"]] / MIB / row["measured_mib"] - 1
        assert abs(off) <= 0.03, f"{row['what']} of rank {row['rank']}: {off:+.1%}"


def test_a_second_engine_takes_what_the_first_takes() -> None:
    rows = json.loads((FIGURES / "eight.json").read_text())["two-engines"]["rows"]
    measured = {row["what"]: row["measured_mib"] for row in rows}
    assert measured["second engine"] == measured["engine"]
    facts, size, wish = LANES["eight"]
    model = replace(locked_model("qwen3-8b"), facts=facts, weight_bytes=size)
    budget = plan_of(CUDA, overrides={**WISH, **wish, "engine.roll": "true"}, model=model).budget
    assert abs(budget.surge_bytes / MIB / measured["second engine"] - 1) <= 0.03


def test_fewer_sequences_and_no_graphs_take_less() -> None:
    """Eager: 3 644 MiB with the default 1024 sequences, 2 138 with 64, of it 1 024 of KV cache."""
    facts, size, _ = LANES["small"]
    model = replace(locked_model("qwen3-8b"), facts=facts, weight_bytes=size)
    found = {}
    for count in ("1024", "64"):
        wish = {"engine.kv_cache.gib": "1", "engine.max_num_seqs": count}
        text = CUDA + "engine: {arguments: {enforce-eager: true}}\n"
        parts = plan_of(text, overrides={**WISH, **wish}, model=model).budget.parts
        found[count] = sum(p.bytes for p in parts if p.key.startswith(("engine", "kv", "act", "gra"))) / MIB
    assert found["1024"] == pytest.approx(3644, rel=0.05)
    assert found["64"] == pytest.approx(2138, rel=0.12)
