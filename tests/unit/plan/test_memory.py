"""The memory plan as it is shown."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.models import locked_model
from support.wishes import CPU, CUDA, plan_of
from warmplan.constants import CONSTANTS
from warmplan.errors import UserError
from warmplan.memory import bar_lines, bar_pieces, meaning_lines, memory_facts, size_columns
from warmplan.plan import Plan

EIGHT = {"engine.max_model_len": "8192"}


def plan(text: str = CUDA, name: str = "llama-3.1-8b", **overrides: str) -> Plan:
    return plan_of(text, overrides={**EIGHT, **overrides}, model=locked_model(name))


def test_the_bar_by_hand() -> None:
    """80 GiB in 64 characters: 1.25 GiB each."""
    lines = list(bar_lines(plan(**{"engine.roll": "false"}).budget))
    assert lines[0] == "[WWWWWWWWWWWWcgaKKKKKKh··········································]"
    assert lines[1:] == [
        "W weights and tables: 14.99 GiB",
        "c CUDA contexts: 1.19 GiB",
        "g CUDA graphs: 0.60 GiB",
        "a activations: 1.15 GiB",
        "K KV cache: 8.00 GiB",
        "h headroom: 0.50 GiB",
        "· free: 53.57 GiB",
    ]


def test_a_second_engine_is_one_piece() -> None:
    pieces = bar_pieces(plan(**{"engine.roll": "true"}).budget)
    assert [piece.letter for piece in pieces] == ["W", "c", "g", "a", "K", "S", "h", "·"]


@given(
    width=st.integers(12, 200), gib=st.sampled_from(["1", "8", "40"]), roll=st.sampled_from(["true", "false"])
)
def test_a_bar_is_as_wide_as_asked_and_hides_nothing(width: int, gib: str, roll: str) -> None:
    wish = {"engine.kv_cache.gib": gib, "engine.roll": roll if gib != "40" else "false"}
    budget = plan(**wish).budget
    pieces = bar_pieces(budget, width=width)
    assert sum(piece.width for piece in pieces) == width
    assert all(piece.width > 0 for piece in pieces)
    assert sum(piece.bytes for piece in pieces) == budget.memory_bytes


def test_what_it_means() -> None:
    text = "\n".join(meaning_lines(plan(**{"engine.roll": "false"}).budget))
    assert "One GPU has 80.00 GiB; 53.57 GiB stay free." in text
    assert "KV cache: 65536 tokens; a token takes 131072 bytes on one rank." in text
    assert "Requests of full length at the same time: 8.0 of 8192 tokens." in text
    assert "Largest model that would still fit: 68.53 GiB of weights on one GPU." in text
    assert "No second engine: a changed setting restarts the engine" in text


def test_nothing_is_said_to_fit_while_the_weights_are_not_known() -> None:
    budget = plan_of(CUDA, overrides=EIGHT, model=None).budget
    text = "\n".join(meaning_lines(budget))
    assert "The size of the weights is not known" in text
    assert "would still fit" not in text
    assert "stay free" not in text
    (weights,) = [part for part in budget.parts if part.key == "weights"]
    assert size_columns(weights) == ("?", "?")
    facts = memory_facts(budget)
    assert facts["parts"][0]["bytes"] is None  # type: ignore[index]
    assert (facts["free_bytes"], facts["largest_kv_cache_bytes"]) == (None, None)


def test_too_much_without_the_weights_says_so_and_offers_no_figure() -> None:
    with pytest.raises(UserError) as raised:
        plan_of(CUDA, overrides={**EIGHT, "engine.kv_cache.gib": "80"}, model=None)
    (problem,) = raised.value.problems
    assert "without the weights, whose size is not known" in problem.problem
    assert "would fit" not in str(problem.hint)


@pytest.mark.parametrize(
    ("text", "wish", "sentence"),
    [
        (CUDA, {}, "A roll starts a second engine beside the first and needs 10.34 GiB for its minutes."),
        (CPU, {"engine.kv_cache.gib": "1"}, "It looks whether the host has that free."),
        (CUDA, {"engine.standby": "true"}, "A standby engine, always there (10.34 GiB), takes over"),
        (
            CUDA,
            {"engine.standby": "true"},
            "Largest KV cache that would still fit beside a second engine: 29.62",
        ),
    ],
)
def test_what_a_second_engine_means(text: str, wish: dict[str, str], sentence: str) -> None:
    assert sentence in "\n".join(meaning_lines(plan(text, **wish).budget))


def test_windows_are_told() -> None:
    text = "\n".join(meaning_lines(plan(name="gpt-oss-20b").budget))
    assert "12 of 24 layers keep only the last 128 tokens." in text


@pytest.mark.parametrize("text", [CPU, CUDA])
def test_facts_for_programs(text: str) -> None:
    found = plan_of(text).budget
    facts = json.loads(json.dumps(memory_facts(found)))
    assert sum(part["bytes"] for part in facts["parts"]) == facts["total_bytes"] == found.total_bytes
    assert len({part["key"] for part in facts["parts"]}) == len(facts["parts"])


def test_every_constant_says_whether_it_was_measured() -> None:
    for constant in CONSTANTS:
        assert constant.source.startswith(("measured: ", "chosen, not measured"))
        if constant.source.startswith("measured"):
            assert "vLLM 0.3" in constant.source
            assert "2026" in constant.source
