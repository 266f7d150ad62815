"""Memory in bytes, against sums done by hand (case 22)."""

from dataclasses import replace

import pytest

from support.wishes import CPU, CUDA, LOCKED, REPOSITORY, SMALL, plan_of
from warmplan import GpuFacts, HostFacts, UserError, read_lock
from warmplan.constants import GIB, MIB


@pytest.mark.parametrize(
    ("environment", "name", "parameters"),
    [
        # embedding, lm_head + layers * (q, o + k, v + their norms + gate, up, down + two norms) + last norm
        (
            "gpu",
            "Qwen/Qwen3-8B",
            2 * 151936 * 4096
            + 36 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 2 * 128 + 3 * 4096 * 12288 + 2 * 4096)
            + 4096,
        ),
        (
            "gpu-tp2",
            "Qwen/Qwen3-32B",
            2 * 151936 * 5120
            + 64 * (2 * 5120 * 8192 + 2 * 5120 * 1024 + 2 * 128 + 3 * 5120 * 25600 + 2 * 5120)
            + 5120,
        ),
    ],
)
def test_computed_sizes_in_the_gpu_locks(environment: str, name: str, parameters: int) -> None:
    lock = read_lock(REPOSITORY / "compose/environments" / environment / "lock.yaml")
    model = lock.find(name=name, revision="main")
    assert model is not None
    assert model.weight_bytes == 2 * parameters
    assert model.weight_bytes_from == "the architecture's shapes, computed"
    assert (model.digest, model.commit, model.source) == (None, None, "unresolved")


def test_shared_memory_on_the_cpu_holds_two_copies() -> None:
    # 2 * 269 030 016 bytes and 256 MiB, rounded up to a MiB.
    assert plan_of(CPU).weight_cache.shm_bytes == (514 + 256) * MIB
    assert plan_of(CPU).engine.shm_bytes is None


def test_tokens_become_bytes_in_whole_blocks() -> None:
    budget = plan_of(CPU + "engine: {max_model_len: 1000, kv_cache: {tokens: 1001}}").budget
    assert budget.kv_cache_tokens == 1024
    assert budget.kv_cache_bytes == 1024 * 23040


def test_fp8_halves_the_kv_cache() -> None:
    text = CUDA + "engine: {arguments: {kv-cache-dtype: fp8}}"
    assert plan_of(text).budget.kv_bytes_per_token == 23040 // 2


def test_tokens_of_an_unknown_layout_are_refused() -> None:
    model = replace(LOCKED, facts=replace(SMALL, kv_lora_rank=512))
    with pytest.raises(UserError, match="the bytes of one token are not known") as raised:
        plan_of(CPU + "engine: {kv_cache: {tokens: 1024}}", model=model)
    assert "hint: give engine.kv_cache.gib" in str(raised.value)


def test_a_request_of_full_length_must_fit() -> None:
    with pytest.raises(UserError) as raised:
        plan_of(CPU + "engine: {kv_cache: {gib: 0.03125}}")
    # Blocks of 128 tokens: 11 of them in 33 554 432 bytes, and 64 blocks are 188 743 680 bytes.
    assert "0.03 GiB hold a request of 1408 tokens, and one may have 8192: 0.14 GiB" in str(raised.value)
    assert "give engine.kv_cache.gib 0.176 or more, or engine.max_model_len 1408 or less" in str(raised.value)
    assert plan_of(CPU + "engine: {kv_cache: {gib: 0.176}}").locked


def test_longer_than_the_model_is_refused() -> None:
    with pytest.raises(UserError, match="9000 is more than the 8192 tokens the model was made for"):
        plan_of(CPU + "engine: {max_model_len: 9000}")
    stretched = replace(LOCKED, facts=replace(SMALL, rope_type="yarn"))
    assert plan_of(CPU + "engine: {max_model_len: 9000}", model=stretched).locked
    text = CPU + "engine: {max_model_len: 9000, arguments: {hf-overrides: {rope_parameters: {}}}}"
    assert plan_of(text).locked


def test_utilization_agrees_with_the_kv_cache() -> None:
    budget = plan_of(CUDA + "engine: {kv_cache: {gib: 10}}").budget
    work = sum(part.bytes for part in budget.parts if part.key in ("graphs", "activations"))
    used = 269_030_016 + 10 * GIB + work
    assert budget.utilization is not None
    assert 0 <= used - budget.utilization * 80 * GIB <= 80 * GIB / 10000


@pytest.mark.parametrize("roll", ["true", "false"])
def test_vllm_finds_its_share_free_on_a_full_gpu(roll: str) -> None:
    """vLLM 0.33, request_memory: the share without the weights is free once context and links exist."""
    text = f"{CUDA}engine: {{roll: {roll}, kv_cache: {{gib: 1}}}}"
    largest = plan_of(text).budget.largest_kv_cache_bytes
    assert largest is not None
    budget = plan_of(text, overrides={"engine.kv_cache.gib": f"{largest // MIB / 1024}"}).budget
    others = [part.bytes for part in budget.parts if part.key != "headroom"]
    own = budget.kv_cache_bytes + sum(p.bytes for p in budget.parts if p.key in ("graphs", "activations"))
    free = 80 * GIB - (sum(others) - own)
    assert budget.utilization is not None
    assert 0 < budget.utilization * 80 * GIB - 269_030_016 <= free


def test_what_does_not_fit_says_by_how_much() -> None:
    with pytest.raises(UserError) as raised:
        plan_of(CUDA + "engine: {kv_cache: {gib: 79}}")
    assert str(raised.value) == (
        "error: gpu.memory_gib: 84.54 GiB are needed on a GPU of 80.00 GiB: 4.54 GiB too much\n"
        "hint: engine.kv_cache.gib 74.45 would fit"
    )
    assert plan_of(CUDA + "engine: {kv_cache: {gib: 74.45}}").locked


@pytest.mark.parametrize(("roll", "engines"), [("true", 2), ("false", 1)])
def test_a_copy_from_disk_is_planned_for(roll: str, engines: int) -> None:
    text = f"{CUDA}engine: {{roll: {roll}, on_miss: "
    refuse, disk = (plan_of(f"{text}{wish}}}").budget for wish in ("refuse", "disk"))
    assert disk.total_bytes - refuse.total_bytes == engines * 269_030_016


@pytest.mark.parametrize(
    ("text", "second"),
    [
        # Without a wish: where it fits. 80 GiB hold two caches of 35 GiB and the rest, and not two of 36.
        (CUDA, "roll"),
        (CUDA + "engine: {kv_cache: {gib: 35}}", "roll"),
        (CUDA + "engine: {kv_cache: {gib: 36}}", "none"),
        (CUDA + "engine: {roll: false}", "none"),
        (CUDA + "engine: {roll: true}", "roll"),
        (CUDA + "engine: {standby: true}", "standby"),
        (CPU, "roll"),
        (CPU + "engine: {roll: false}", "none"),
        (CPU + "engine: {standby: true}", "standby"),
    ],
)
def test_what_a_second_engine_is_there_for(text: str, second: str) -> None:
    budget = plan_of(text).budget
    assert budget.second == second
    assert (budget.surge_bytes > 0) is (second != "none")
    assert budget.total_bytes - budget.steady_bytes == (budget.surge_bytes if second == "roll" else 0)


def test_nobody_says_that_unknown_weights_fit_beside_a_second_engine() -> None:
    assert plan_of(CUDA, model=None).budget.second == "none"
    assert plan_of(CUDA + "engine: {roll: true}", model=None).budget.second == "roll"


def test_three_ranks_hold_a_third_each() -> None:
    budget = plan_of(CUDA + "parallel: {tensor: 3}").budget
    assert budget.rank_weight_bytes == 269_030_016 // 3


def gpu(uuid: str, gib: int = 80) -> GpuFacts:
    return GpuFacts(uuid=uuid, total_bytes=gib * GIB, free_bytes=gib * GIB, architecture="sm90")


@pytest.mark.parametrize(
    ("text", "host", "expected"),
    [
        (CPU, HostFacts(cores=2, memory_bytes=2 * GIB), "of memory are needed and the host has 2.00 GiB"),
        (CPU, HostFacts(cores=2, memory_bytes=16 * GIB), None),
        # A roll that nobody asked for looks for its memory when it begins.
        (CPU, HostFacts(cores=2, memory_bytes=4 * GIB), None),
        (
            CPU + "engine: {roll: true}",
            HostFacts(cores=2, memory_bytes=4 * GIB),
            "has 4.00 GiB\nhint: use a smaller model or a smaller engine.kv_cache, or engine.roll false",
        ),
        (
            CPU + "engine: {standby: true}",
            HostFacts(cores=2, memory_bytes=4 * GIB),
            "has 4.00 GiB\nhint: use a smaller model or a smaller engine.kv_cache, or engine.standby false",
        ),
        (CUDA, HostFacts(cores=2, memory_bytes=GIB), "1 GPUs are wanted and the host has 0"),
        (
            CUDA,
            HostFacts(cores=2, memory_bytes=GIB, gpus=(gpu("GPU-a", 8),)),
            "needed and GPU GPU-a has 8.00 GiB",
        ),
        (CUDA, HostFacts(cores=2, memory_bytes=GIB, gpus=(gpu("GPU-a"),)), None),
        (
            CUDA.replace("80}", "80, devices: [GPU-b]}"),
            HostFacts(cores=2, memory_bytes=GIB, gpus=(gpu("GPU-a"),)),
            "the host has no GPU GPU-b",
        ),
    ],
)
def test_host(text: str, host: HostFacts, expected: str | None) -> None:
    if expected is None:
        assert plan_of(text, host=host) == plan_of(text)
    else:
        with pytest.raises(UserError, match=expected):
            plan_of(text, host=host)
