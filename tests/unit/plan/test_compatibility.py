"""What is refused by name, with the reason (cases 13 and 14)."""

from dataclasses import replace

import pytest

from support.wishes import CPU, CUDA, LOCKED, PINS, SMALL, errors_of, plan_of
from warmplan import UserError
from warmplan.compatibility import refuse_fp8_scales, refuse_quantisation, refuse_variable, refuse_version
from warmplan.lock import ModelFacts


@pytest.mark.parametrize("method", ["awq", "gptq", "gptq_marlin", "compressed-tensors", "AWQ"])
def test_quantised_checkpoints_are_refused_before_anything_starts(method: str) -> None:
    model = replace(LOCKED, facts=ModelFacts(quant_method=method))
    with pytest.raises(UserError) as raised:
        plan_of(CUDA, model=model)
    assert f"quantisation {method} does not work with the weight cache" in str(raised.value)
    assert "hint: use the unquantised checkpoint, or an fp8 one" in str(raised.value)


@pytest.mark.parametrize("method", ["awq", "gptq", "compressed-tensors"])
def test_wished_quantisation_is_refused_with_its_line(method: str) -> None:
    text = errors_of(
        f"platform: cuda\ngpu: {{memory_gib: 80}}\nmodel:\n  name: O/M\n  quantization: {method}\n"
    )
    assert f"environment.yaml:5: model.quantization: quantisation {method} does not work" in text


def test_fp8_without_blocks_is_refused_before_anything_starts() -> None:
    model = replace(LOCKED, facts=ModelFacts(quant_method="fp8"))
    with pytest.raises(UserError) as raised:
        plan_of(CUDA, model=model)
    assert "model.name: Org/Model: fp8 with one scale for a matrix or a row" in str(raised.value)
    assert "hint: use an fp8 checkpoint with scales in blocks" in str(raised.value)


@pytest.mark.parametrize(("method", "block"), [("fp8", 128), (None, None), ("mxfp4", None)])
def test_other_scales_pass(method: str | None, block: int | None) -> None:
    assert refuse_fp8_scales(method, weight_block=block) is None


@pytest.mark.parametrize("method", [None, "fp8"])
def test_fp8_and_unquantised_pass(method: str | None) -> None:
    assert refuse_quantisation(method, platform="cuda") is None
    assert plan_of(
        CUDA, model=replace(LOCKED, facts=replace(SMALL, quant_method=method, weight_block=128))
    ).locked


def test_unknown_quantisation_is_refused() -> None:
    refused = refuse_quantisation("new-thing", platform="cuda")
    assert refused is not None
    assert "has not been tried" in refused[0]


@pytest.mark.parametrize(
    ("version", "platform", "expected"),
    [
        ("0.32.0", "cpu", None),
        ("0.33.0", "cuda", None),
        ("0.33.1", "cuda", None),
        ("0.32.0", "cuda", "vLLM 0.32.0 is not supported on cuda: its weight-cache key leaves out"),
        ("0.31.2", "cpu", "it does not count the cached bytes"),
        ("0.30.0", "cuda", "it has no `vllm preload`"),
        ("0.11.0", "cuda", "vLLM 0.11.0 has no weight cache; supported on cuda: 0.33"),
        ("0.40.0", "cuda", "vLLM 0.40.0 has not been tried with this project"),
        ("main", "cuda", "is not a version number"),
    ],
)
def test_versions(version: str, platform: str, expected: str | None) -> None:
    refused = refuse_version(version, platform=platform)
    assert refused == expected if expected is None else refused is not None and expected in refused


def test_plan_refuses_an_old_version() -> None:
    with pytest.raises(UserError) as raised:
        plan_of(CUDA, pins=replace(PINS, vllm_cuda="0.31.0"))
    assert "compose/pins.yaml: vllm.cuda.version: vLLM 0.31.0 is not supported on cuda" in str(raised.value)


@pytest.mark.parametrize(
    ("value", "refused"),
    [
        ("expandable_segments:True", True),
        ("max_split_size_mb:64, expandable_segments : true", True),
        ("expandable_segments:False", False),
        ("max_split_size_mb:64", False),
    ],
)
def test_expandable_segments(value: str, refused: bool) -> None:
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        assert (refuse_variable(name, value) is not None) is refused
    for key in ("engine", "weight_cache"):
        text = f"{CPU}{key}: {{environment: {{PYTORCH_ALLOC_CONF: '{value}'}}}}"
        if refused:
            assert "expandable_segments" in errors_of(text)
        else:
            assert plan_of(text).locked
