"""Why an engine would or would not map what is held, from the container as Docker shows it."""

from dataclasses import replace

import pytest

from support.wishes import CPU, CUDA, LOCKED, plan_of
from warmplan.explain import explain_identity, held_fields
from warmplan.plan import Plan

HARD = (
    "engine: {arguments: {kv-cache-dtype: fp8, hf_overrides: {a: [1, 'x y']}, enable-expert-parallel: true, "
    "ignore-patterns: [a, b]}, environment: {VLLM_USE_DEEP_GEMM: 0, VLLM_LOGGING_LEVEL: DEBUG}}\n"
)


def held_by(plan: Plan) -> dict[str, str]:
    """What Docker would show of the weight cache that this plan brings up."""
    service = plan.weight_cache
    return held_fields(command=service.command, environment=dict(service.environment), image=service.image)


@pytest.mark.parametrize(
    "text",
    [
        CPU,
        CUDA,
        CPU + "engine: {arguments: {enforce-eager: true}}",
        CUDA + HARD,
        CUDA.replace("Org/Model", "Org/Model, dtype: float16, quantization: fp8, trust_remote_code: true"),
        CUDA + "parallel: {tensor: 3}",
        CUDA + "engine: {arguments: {enable-expert-parallel: false}}",
    ],
)
def test_a_container_explains_as_the_plan_that_made_it(text: str) -> None:
    plan = plan_of(text)
    found = explain_identity(plan.identity, held_by(plan))
    assert [field for field in found.fields if not field.equal] == []
    assert (found.hit, found.sentence) == (True, "would hit: every field is equal")


@pytest.mark.parametrize(
    ("text", "name", "held", "wanted"),
    [
        (CUDA.replace("Org/Model", "Org/Model, dtype: float16"), "dtype", "auto", "float16"),
        (CUDA + "parallel: {tensor: 3}", "tensor", "1", "3"),
        (CUDA + "engine: {arguments: {kv-cache-dtype: fp8}}", "--kv-cache-dtype", "not set", "fp8"),
        (CUDA + "engine: {environment: {VLLM_USE_DEEP_GEMM: 0}}", "VLLM_USE_DEEP_GEMM", "not set", "0"),
    ],
)
def test_the_field_that_differs_is_named(text: str, name: str, held: str, wanted: str) -> None:
    found = explain_identity(plan_of(text).identity, held_by(plan_of(CUDA)))
    (different,) = [field for field in found.fields if not field.equal]
    assert (different.name, different.held, different.wanted) == (name, held, wanted)
    assert found.sentence == f"would miss: {name} differs"
    assert not found.hit


def test_a_flag_that_was_taken_away_differs_too() -> None:
    held = held_by(plan_of(CUDA + "engine: {arguments: {kv-cache-dtype: fp8}}"))
    found = explain_identity(plan_of(CUDA).identity, held)
    assert found.sentence == "would miss: --kv-cache-dtype differs"


def test_other_content_and_version() -> None:
    held = held_by(plan_of(CUDA, model=replace(LOCKED, digest="ef" * 32)))
    found = explain_identity(plan_of(CUDA).identity, {**held, "vllm": "0.33.1"})
    assert found.sentence == "would miss: content, vllm differ"


def test_nothing_held_and_nothing_locked() -> None:
    assert (
        explain_identity(plan_of(CUDA).identity, None).sentence == "would miss: no weight cache holds weights"
    )
    loose = explain_identity(plan_of(CUDA, model=None).identity, held_by(plan_of(CUDA)))
    assert not loose.hit
    assert loose.sentence.startswith("cannot be said: the plan's model is not resolved")
