"""The memory plan against what the driver counted on an H200, in three sessions.

The constants were fitted to the first, docs/measurements/h200-2026-11-30. The others came after: they check
them. In the third all processes were forked, the weight cache's ranks and both of two ranks of an engine.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.models import locked_model, public_model
from support.wishes import CUDA, REPOSITORY, plan_of
from warmplan.constants import MIB
from warmplan.lock import LockedModel
from warmplan.plan import Plan

FIGURES = REPOSITORY / "docs/measurements/h200-2026-11-30"
SECOND = REPOSITORY / "docs/measurements/h200-2026-11-30-second"
THIRD = REPOSITORY / "docs/measurements/h200-2026-11-30-third"
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
    "roll": (EIGHT, 16_381_470_720, {"engine.kv_cache.gib": "8", "engine.roll": "true"}),
}


def planned(lane: str) -> Plan:
    facts, size, wish = LANES[lane]
    model: LockedModel = replace(locked_model("qwen3-8b"), facts=facts, weight_bytes=size)
    return plan_of(CUDA, overrides={**WISH, **wish}, model=model)


def rows_of(folder: Path, lane: str, step: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((folder / f"{lane}.json").read_text())[step]["rows"]
    return rows


def far_off(lane: str, rows: list[dict[str, Any]]) -> dict[str, float]:
    """The rows in which today's plan is off by more than 3 %, and how far."""
    parts = {part.key: part.bytes for part in planned(lane).budget.parts if part.key != "headroom"}
    surge = sum(size for key, size in parts.items() if key.startswith("surge_"))
    cache = parts["weights"] + parts["tables"] + parts["weight_cache_context"]
    engine = sum(parts.values()) - cache - surge
    second = engine if "second engine" in {row["what"] for row in rows} else 0
    expected = {"weight cache": cache, "engine": engine, "second engine": second}
    expected["sum"] = sum(expected.values())
    off = {
        f"{row['what']} of rank {row['rank']}": expected[row["what"]] / MIB / row["measured_mib"] - 1
        for row in rows
    }
    return {name: share for name, share in off.items() if abs(share) > 0.03}


@pytest.mark.parametrize(
    ("folder", "lane", "step"),
    [
        *((FIGURES, lane, step) for lane in ("small", "eight", "tp2") for step in ("memory", "memory-warm")),
        *((SECOND, lane, step) for lane in ("small", "eight", "tp2") for step in ("memory", "memory-warm")),
        (THIRD, "eight", "memory"),
        (THIRD, "tp2", "memory"),
        (THIRD, "tp2", "memory-warm"),
        (FIGURES, "small", "two-engines"),
        (FIGURES, "eight", "two-engines"),
        (SECOND, "small", "two-engines"),
        (SECOND, "roll", "memory"),
        (SECOND, "roll", "standby-memory"),
        (SECOND, "roll", "load-standby-kill"),
    ],
    ids=lambda value: value.name if isinstance(value, Path) else value,
)
def test_each_process_and_their_sum_within_three_percent(folder: Path, lane: str, step: str) -> None:
    rows = rows_of(folder, lane, step)
    assert {"weight cache", "engine", "sum"} <= {row["what"] for row in rows}
    assert not far_off(lane, rows)


def test_a_second_engine_that_compiles_leaves_the_sum_within_three_percent() -> None:
    # Its own row is left out, 4.9 % above the plan: it is the highest of many looks while that engine was
    # getting ready with nothing compiled before. The plan is of engines that serve (`standby-memory`).
    assert far_off("roll", rows_of(SECOND, "roll", "load-roll")).keys() <= {"second engine of rank 0"}


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
