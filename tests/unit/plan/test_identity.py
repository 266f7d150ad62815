"""What makes weights another set of weights."""

from dataclasses import replace

import pytest

from support.wishes import CUDA, LOCKED, PINS, plan_of
from warmplan.identity import Identity


def identity(text: str = CUDA, digest: str | None = LOCKED.digest, vllm: str = "0.33.0") -> Identity:
    model = replace(LOCKED, digest=digest)
    return plan_of(text, model=model, pins=replace(PINS, vllm_cuda=vllm)).identity


def test_two_fine_tunes_of_one_architecture_differ() -> None:
    """Case 10."""
    assert identity(digest="11" * 32).value != identity(digest="22" * 32).value


def test_name_and_revision_do_not_matter_only_content_does() -> None:
    renamed = CUDA.replace("Org/Model", "Other/Name, revision: v2")
    assert identity(renamed).value == identity().value


@pytest.mark.parametrize(
    "other",
    [
        CUDA.replace("Org/Model", "Org/Model, dtype: float16"),
        CUDA.replace("Org/Model", "Org/Model, quantization: fp8"),
        CUDA.replace("Org/Model", "Org/Model, trust_remote_code: true"),
        CUDA + "parallel: {tensor: 3}",
        CUDA + "engine: {arguments: {kv-cache-dtype: fp8}}",
        CUDA + "engine: {arguments: {hf-overrides: {a: 1}}}",
        CUDA + "engine: {environment: {VLLM_USE_DEEP_GEMM: 0}}",
    ],
)
def test_what_decides_the_weights_is_in_it(other: str) -> None:
    assert identity(other).value != identity().value


@pytest.mark.parametrize(
    "other",
    [
        CUDA + "engine: {max_model_len: 1024, arguments: {tool-call-parser: hermes}}",
        CUDA + "engine: {environment: {VLLM_LOGGING_LEVEL: DEBUG}}",
        CUDA + "gateway: {port: 9000}",
        CUDA + "project: other",
    ],
)
def test_engine_settings_are_not(other: str) -> None:
    assert identity(other).value == identity().value


def test_the_version_of_vllm_is_in_it() -> None:
    assert identity(vllm="0.33.1").value != identity().value


def test_without_a_digest_the_plan_is_not_locked() -> None:
    assert identity().locked
    assert not identity(digest=None).locked
    plan = plan_of(CUDA, model=None)
    assert not plan.locked
    assert plan.model.path.endswith("/unlocked")


def test_fields_cannot_run_into_each_other() -> None:
    one = identity(CUDA + "engine: {arguments: {moe-backend: \"a\\n--linear-backend='b'\"}}")
    two = identity(CUDA + "engine: {arguments: {moe-backend: a, linear-backend: b}}")
    assert one.value != two.value
