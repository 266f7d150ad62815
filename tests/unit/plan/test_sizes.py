"""Wishes against models of many kinds: what a rank holds, what is refused, and what would fit instead."""

import re
from dataclasses import replace

import pytest

from support.models import NAMES, locked_model, public_model
from support.wishes import CPU, CUDA, plan_of
from warmplan import LockedModel, UserError
from warmplan.budget import Budget
from warmplan.constants import CUDA_CONTEXT, CUDA_GRAPHS, CUDA_WORKSPACES, GIB
from warmplan.facts import NO_FACTS

TWO = "platform: cuda\nmodel: {name: Org/Model}\nparallel: {tensor: 2}\ngpu: {memory_gib: 80}\n"


def budget(text: str, name: str, **overrides: str) -> Budget:
    given = {key.replace("__", "."): value for key, value in overrides.items()}
    return plan_of(text, overrides=given, model=locked_model(name)).budget


def refusal(text: str, model: LockedModel, **overrides: str) -> str:
    given = {key.replace("__", "."): value for key, value in overrides.items()}
    with pytest.raises(UserError) as raised:
        plan_of(text, overrides=given, model=model)
    assert raised.value.exit_code == 2
    return str(raised.value)


def test_kv_cache_for_concurrent_requests_by_hand() -> None:
    """Llama 3.1 8B, 4 requests of 8192 tokens: 4 * 8192 * 131072 bytes, in whole blocks already."""
    found = budget(CUDA, "llama-3.1-8b", engine__max_model_len="8192", engine__kv_cache__concurrency="4")
    assert found.kv_cache_bytes == 4 * 8192 * 131072
    assert found.full_length_requests == 4
    assert found.kv_cache_tokens == 4 * 8192


def test_tokens_of_a_model_with_windows_are_of_full_requests() -> None:
    found = budget(CUDA, "gpt-oss-20b", engine__max_model_len="131072", engine__kv_cache__tokens="262144")
    # Two requests of 131072 tokens; the sum for one is in test_kv.py.
    assert found.kv_cache_bytes == 2 * (8192 + 1032 + 1) * 12 * 16 * 2048
    assert found.kv_cache_tokens == 262144


def test_fewer_tokens_in_flight_on_a_smaller_gpu() -> None:
    small = CUDA.replace("80}", "40}")
    wish = {"engine__max_model_len": "131072", "engine__kv_cache__concurrency": "1"}
    assert budget(small, "gpt-oss-20b", **wish).kv_cache_bytes == (8192 + 265) * 12 * 16 * 2048
    assert budget(CUDA, "gpt-oss-20b", **wish).kv_cache_bytes == (8192 + 1033) * 12 * 16 * 2048


def test_latent_attention_has_larger_blocks() -> None:
    """DeepSeek-V2-Lite, one request of 1000 tokens: 8 blocks of 128, 27 layers of 1152 bytes."""
    wish = {"engine__max_model_len": "1000", "engine__kv_cache__concurrency": "1"}
    assert budget(CUDA, "deepseek-v2-lite", **wish).kv_cache_bytes == 8 * 128 * 27 * 1152


def test_a_rank_of_a_split_model() -> None:
    found = budget(TWO, "llama-3.1-8b", engine__max_model_len="8192")
    # Half of all but 65 norms of 4096, which are on both.
    assert found.rank_weight_bytes == (16_060_522_496 + 65 * 4096 * 2) // 2
    assert found.kv_bytes_per_token == 65536


def test_quantised_on_loading() -> None:
    """fp8 halves the matrices of the layers; embeddings and norms stay, a matrix has one scale."""
    plain, fp8 = (
        budget(CUDA, "llama-3.1-8b", engine__max_model_len="8192", **more)
        for more in ({}, {"model__quantization": "fp8"})
    )
    matrices = 32 * (2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14336 * 4096)
    assert plain.rank_weight_bytes is not None
    assert fp8.rank_weight_bytes == plain.rank_weight_bytes - matrices + 32 * 7 * 4


def test_float32_doubles_weights_and_cache() -> None:
    found = budget(CUDA, "llama-3.2-1b", model__dtype="float32", engine__max_model_len="8192")
    assert found.rank_weight_bytes == 2 * 2_471_628_800
    assert found.kv_bytes_per_token == 2 * 32768


def test_expert_parallel_splits_experts_whole() -> None:
    """60 experts on 8 ranks: 8 on four of them, 7 on the others; a plan counts 8."""
    eight = TWO.replace("tensor: 2", "tensor: 8")
    model = "qwen1.5-moe-a2.7b"
    wish = {"engine__max_model_len": "8192"}
    together = budget(eight, model, **wish, **{"engine__arguments__enable-expert-parallel": "true"})
    apart = budget(eight, model, **wish)
    assert together.rank_weight_bytes is not None
    assert apart.rank_weight_bytes is not None
    expert = 3 * 1408 * 2048 * 2
    assert together.rank_weight_bytes - apart.rank_weight_bytes == 24 * (8 * expert - 60 * expert // 8)


def test_headers_win_over_shapes_that_are_not_the_models() -> None:
    model = replace(locked_model("llama-3.1-8b"), weight_bytes=20_000_000_000)
    found = plan_of(CUDA, overrides={"engine.max_model_len": "8192"}, model=model).budget
    assert found.rank_weight_bytes == 20_000_000_000
    assert found.weight_bytes_from is not None
    assert "config.json stands for 16060522496 bytes" in found.weight_bytes_from


def test_an_output_matrix_that_is_stored_twice_is_held_once() -> None:
    """Qwen3-0.6B: tied, yet 311 tensors with 1 503 264 768 bytes hold the embedding a second time."""
    facts = replace(
        public_model("qwen3-8b").facts,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        tie_word_embeddings=True,
    )
    model = replace(locked_model("qwen3-8b"), weight_bytes=1_503_264_768, facts=facts)
    found = plan_of(CUDA, model=model).budget
    assert found.rank_weight_bytes == 1_503_264_768 - 151936 * 1024 * 2
    assert found.weight_bytes == 1_503_264_768


def test_a_roll_counts_a_second_engine() -> None:
    wish = {"engine__max_model_len": "8192"}
    alone = budget(CUDA, "llama-3.1-8b", **wish, engine__roll="false")
    rolled = budget(CUDA, "llama-3.1-8b", **wish, engine__roll="true")
    # llama-3.1-8b: 2 * 14336 + 4096 values for each of 8192 tokens, 1024 rows of 128256 logits.
    work = CUDA_WORKSPACES.bytes + 8192 * 32768 * 2 + 1024 * 128256 * 4
    second = CUDA_CONTEXT.bytes + CUDA_GRAPHS.bytes + work + 8 * GIB
    assert rolled.total_bytes - alone.total_bytes == second
    assert rolled.utilization == alone.utilization


@pytest.mark.parametrize("text", [CUDA, TWO], ids=["one", "two"])
def test_a_hybrid_asks_for_the_two_numbers(text: str) -> None:
    model = locked_model("qwen3-next-80b-a3b")
    error = refusal(text, model)
    assert "model.name: the plan does not know the KV cache of Qwen3NextForCausalLM" in error
    assert "hint: give model.weight_gib and model.kv_bytes_per_token, of one rank" in error
    given = {"model.weight_gib": "40", "model.kv_bytes_per_token": "12288", "engine.max_model_len": "8192"}
    found = plan_of(text, overrides=given, model=model).budget
    assert found.rank_weight_bytes == 40 * GIB
    assert found.kv_cache_tokens == 8 * GIB // (16 * 12288) * 16


def test_an_unknown_model_on_the_cpu_still_plans_with_gib() -> None:
    model = replace(locked_model("qwen3-next-80b-a3b"), weight_bytes=GIB)
    found = plan_of(CPU, model=model).budget
    assert (found.kv_cache_tokens, found.rank_weight_bytes) == (None, GIB)


def test_concurrency_needs_a_length() -> None:
    model = replace(locked_model("llama-3.1-8b"), facts=replace(NO_FACTS, architecture="X"))
    error = refusal(CPU, model, engine__kv_cache__concurrency="2", model__kv_bytes_per_token="100")
    assert "engine.kv_cache.concurrency: means requests of full length, and the model says none" in error


def test_a_split_that_vllm_refuses() -> None:
    error = refusal(TWO.replace("tensor: 2", "tensor: 6"), locked_model("llama-3.1-8b"))
    assert "parallel.tensor: vLLM cannot split" in error
    assert "hint: use 4 or 8" in error


def test_heads_are_divided_in_every_model() -> None:
    model = locked_model("qwen3-next-80b-a3b")
    error = refusal(TWO.replace("tensor: 2", "tensor: 3"), model, model__weight_gib="9")
    assert "parallel.tensor: vLLM cannot split 16 attention heads over 3 ranks" in error
    assert "hint: use 2 or 4" in error


# (model, wish, offer in the hint)
TOO_MUCH = [
    ("llama-3.1-8b", {"engine.kv_cache.gib": "70"}, "engine.kv_cache.gib 61.57"),
    (
        "llama-3.1-8b",
        {"engine.kv_cache.tokens": "600000", "engine.max_model_len": "8192"},
        "engine.kv_cache.tokens 504416",
    ),
    (
        "llama-3.1-8b",
        {"engine.kv_cache.concurrency": "100", "engine.max_model_len": "8192"},
        "engine.kv_cache.concurrency 61.5",
    ),
    (
        "llama-3.1-8b",
        {"engine.kv_cache.gib": "40", "engine.roll": "true"},
        "engine.kv_cache.gib 29.61 or engine.roll false",
    ),
    ("qwen3-32b", {"engine.kv_cache.gib": "24"}, "engine.kv_cache.gib 15.07"),
    (
        "qwen3-32b",
        {"engine.kv_cache.concurrency": "1", "engine.roll": "true"},
        "engine.max_model_len 25136 with engine.kv_cache.gib 6.14 or engine.roll false or parallel.tensor 2",
    ),
    (
        "llama-3.1-8b",
        {"engine.kv_cache.gib": "40", "engine.standby": "true"},
        "engine.kv_cache.gib 29.61 or engine.standby false",
    ),
    ("mixtral-8x7b-v0.1", {"engine.kv_cache.gib": "8"}, "parallel.tensor 2"),
]


@pytest.mark.parametrize(("name", "wish", "offer"), TOO_MUCH)
def test_the_nearest_plan_that_fits(name: str, wish: dict[str, str], offer: str) -> None:
    base = {} if name == "mixtral-8x7b-v0.1" else {"engine.max_model_len": "32768"}
    with pytest.raises(UserError, match="too much") as raised:
        plan_of(CUDA, overrides={**base, **wish}, model=locked_model(name))
    (hint,) = re.findall(r"hint: (.*) would fit", str(raised.value))
    assert hint == offer


@pytest.mark.parametrize(("name", "wish", "offer"), TOO_MUCH)
def test_every_offer_fits_indeed(name: str, wish: dict[str, str], offer: str) -> None:
    for one in offer.split(" or "):
        changes = dict(re.findall(r"([a-z_.]+) ([0-9.]+|false)", one))
        kept = {"engine.max_model_len": "32768", **wish}
        if any(key.startswith("engine.kv_cache.") for key in changes):
            kept = {key: value for key, value in kept.items() if not key.startswith("engine.kv_cache.")}
        plan = plan_of(CUDA, overrides={**kept, **changes}, model=locked_model(name))
        assert (plan.budget.free_bytes or 0) >= 0


def test_nothing_fits_on_a_small_gpu() -> None:
    error = refusal(CUDA.replace("80}", "8}"), locked_model("deepseek-v3"), engine__max_model_len="8192")
    assert "hint: use a smaller or a quantised model, or larger GPUs" in error


@pytest.mark.parametrize("roll", ["true", "false"])
@pytest.mark.parametrize("name", [name for name in NAMES if public_model(name).tensors is not None])
def test_what_is_said_to_fit_fits(name: str, roll: str) -> None:
    """The largest KV cache, and weights as large as the plan says, leave nothing free and nothing over."""
    large = CUDA.replace("80}", "800}")
    length = {"engine.max_model_len": "4096", "engine.kv_cache.gib": "4", "engine.roll": roll}
    found = plan_of(large, overrides=length, model=locked_model(name)).budget
    assert found.largest_kv_cache_bytes is not None
    assert found.largest_rank_weight_bytes is not None
    for key, size in (
        ("engine.kv_cache.gib", found.largest_kv_cache_bytes),
        ("model.weight_gib", found.largest_rank_weight_bytes),
    ):
        full = {**length, key: f"{int(size / GIB * 1e6) / 1e6:.6f}"}
        fitting = plan_of(large, overrides=full, model=locked_model(name)).budget
        # A number given by hand stands for weights and tables together.
        tables = sum(part.bytes for part in found.parts if part.key == "tables")
        spare = tables if key == "model.weight_gib" else 0
        assert 0 <= (fitting.free_bytes or 0) - spare < GIB / 1000
        over = f"{(size + spare) / GIB + 0.01:.6f}"
        with pytest.raises(UserError, match="too much"):
            plan_of(large, overrides={**length, key: over}, model=locked_model(name))
