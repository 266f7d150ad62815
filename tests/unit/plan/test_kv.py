"""The KV cache of public models against sums done by hand, and what must always hold."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.models import NAMES, public_model
from warmplan.kv import KvLayout, by_hand, plan_kv

# Tokens of a step of `vllm serve` on a large GPU, and two steps under way.
IN_FLIGHT = 2 * 8192
KNOWN = tuple(name for name in NAMES if name != "qwen3-next-80b-a3b")


def layout(name: str, *, ranks: int = 1, value_bytes: int = 2, windows: bool = True) -> KvLayout:
    found = plan_kv(
        public_model(name).facts,
        ranks=ranks,
        value_bytes=value_bytes,
        block=16,
        in_flight=IN_FLIGHT,
        windows=windows,
    )
    assert found is not None
    return found


# Plain attention: 2 (key, value) * layers * key heads of the rank * head size * bytes of a value.
# Latent attention: layers * (latent rank + rotary part) * bytes of a value, whole on every rank.
@pytest.mark.parametrize(
    ("name", "ranks", "value_bytes", "expected"),
    [
        ("smollm2-135m-instruct", 1, 2, 2 * 30 * 3 * 64 * 2),
        ("llama-3.1-8b", 1, 2, 2 * 32 * 8 * 128 * 2),
        ("llama-3.1-8b", 2, 2, 2 * 32 * 4 * 128 * 2),
        ("llama-3.1-8b", 16, 2, 2 * 32 * 1 * 128 * 2),
        ("llama-3.1-8b", 1, 1, 2 * 32 * 8 * 128 * 1),
        ("llama-3.2-1b", 1, 2, 2 * 16 * 8 * 64 * 2),
        ("qwen2.5-0.5b-instruct", 1, 2, 2 * 24 * 2 * 64 * 2),
        ("qwen3-8b", 1, 2, 2 * 36 * 8 * 128 * 2),
        ("qwen3-32b", 2, 2, 2 * 64 * 4 * 128 * 2),
        ("phi-3-mini-4k-instruct", 1, 2, 2 * 32 * 32 * 96 * 2),
        ("mistral-7b-v0.1", 1, 2, 2 * 32 * 8 * 128 * 2),
        ("gemma-2b", 1, 2, 2 * 18 * 1 * 256 * 2),
        ("gemma-2b", 4, 2, 2 * 18 * 1 * 256 * 2),
        ("gemma-2-9b", 1, 2, 2 * 42 * 8 * 256 * 2),
        ("gemma-3-1b-it", 1, 2, 2 * 26 * 1 * 256 * 2),
        ("mixtral-8x7b-v0.1", 8, 2, 2 * 32 * 1 * 128 * 2),
        ("qwen1.5-moe-a2.7b", 1, 2, 2 * 24 * 16 * 128 * 2),
        ("qwen3-30b-a3b", 1, 2, 2 * 48 * 4 * 128 * 2),
        ("gpt-oss-20b", 1, 2, 2 * 24 * 8 * 64 * 2),
        ("deepseek-v2-lite", 1, 2, 27 * (512 + 64) * 2),
        ("deepseek-v3", 8, 2, 61 * (512 + 64) * 2),
    ],
)
def test_bytes_of_one_token(name: str, ranks: int, value_bytes: int, expected: int) -> None:
    assert layout(name, ranks=ranks, value_bytes=value_bytes).token_bytes == expected


def test_every_model_has_a_hand_calculation() -> None:
    (marks,) = [
        mark
        for mark in test_bytes_of_one_token.pytestmark
        if mark.name == "parametrize"  # type: ignore[attr-defined]
    ]
    assert {case[0] for case in marks.args[1]} == set(KNOWN)


@pytest.mark.parametrize(
    ("name", "full", "windowed", "window"),
    [
        ("llama-3.1-8b", 32, 0, None),
        ("qwen3-8b", 36, 0, None),
        ("mistral-7b-v0.1", 0, 32, 4096),
        ("phi-3-mini-4k-instruct", 0, 32, 2047),
        ("gemma-2-9b", 21, 21, 4096),
        ("gemma-3-1b-it", 4, 22, 512),
        ("gpt-oss-20b", 12, 12, 128),
    ],
)
def test_which_layers_have_a_window(name: str, full: int, windowed: int, window: int | None) -> None:
    found = layout(name)
    assert (found.full_layers, found.window_layers, found.window) == (full, windowed, window)


def test_a_long_request_of_gpt_oss_by_hand() -> None:
    """131072 tokens: 8192 blocks of 12 full layers; windows hold 127 + 16384 tokens, 1032 blocks and one."""
    block = 12 * 16 * (2 * 8 * 64 * 2)
    assert layout("gpt-oss-20b").request_bytes(131072) == (8192 + 1032 + 1) * block


def test_a_long_request_of_gemma_3_by_hand() -> None:
    """Groups of 4 layers: one of full ones, and 22 / 4 rounded up = 6 of windows, with padding."""
    block = 4 * 16 * (2 * 1 * 256 * 2)
    window = (511 + 16384 + 15) // 16 + 1
    assert layout("gemma-3-1b-it").request_bytes(32768) == (2048 + 6 * window) * block


# What the planner inside vLLM 0.32.0 (v1/core/kv_cache_utils.py) answered for these layers and 8 GiB, with
# blocks of 16 tokens and 16384 tokens in flight: blocks, requests of full length, bytes of one.
@pytest.mark.parametrize(
    ("name", "length", "blocks", "requests", "request_bytes"),
    [
        ("gpt-oss-20b", 131072, 21845, 2.368021680216802, 3627417600),
        ("gemma-3-1b-it", 32768, 131072, 15.622407628128725, 549847040),
        ("gemma-2-9b", 8192, 3120, 3.0439024390243903, 2821324800),
        ("mistral-7b-v0.1", 32768, 4096, 3.1975019516003123, 2686451712),
        ("llama-3.1-8b", 8192, 4096, 8.0, 1073741824),
    ],
)
def test_as_vllm_plans_it(name: str, length: int, blocks: int, requests: float, request_bytes: int) -> None:
    found = layout(name)
    assert 8 * 1024**3 // found.block_bytes == blocks
    assert found.requests(8 * 1024**3, length=length) == requests
    assert found.request_bytes(length) == request_bytes


def test_windows_can_be_switched_off() -> None:
    found = layout("gpt-oss-20b", windows=False)
    assert (found.full_layers, found.window) == (24, None)


@pytest.mark.parametrize(
    "change",
    [
        {"architecture": "JambaForCausalLM"},
        {"num_hidden_layers": None},
        {"index_topk": 2048},
        {"sliding_window": 4096, "window_layers": None},
        {"kv_lora_rank": 512, "qk_rope_head_dim": None},
    ],
)
def test_other_layouts_are_not_guessed(change: dict[str, object]) -> None:
    facts = replace(public_model("llama-3.1-8b").facts, **change)  # type: ignore[arg-type]
    assert plan_kv(facts, ranks=1, value_bytes=2, block=16, in_flight=IN_FLIGHT) is None


def test_a_hybrid_is_not_guessed() -> None:
    facts = public_model("qwen3-next-80b-a3b").facts
    assert plan_kv(facts, ranks=1, value_bytes=2, block=16, in_flight=IN_FLIGHT) is None


def test_a_number_given_by_hand() -> None:
    found = by_hand(1000, block=16)
    assert (found.token_bytes, found.request_bytes(17)) == (1000, 32 * 1000)


LAYOUTS = st.builds(
    KvLayout,
    full_layers=st.integers(1, 80),
    window_layers=st.just(0),
    layer_bytes=st.sampled_from([256, 576, 4096]),
    window=st.none(),
    block=st.sampled_from([16, 128]),
    in_flight=st.sampled_from([2048, 16384]),
) | st.builds(
    KvLayout,
    full_layers=st.integers(0, 60),
    window_layers=st.integers(1, 60),
    layer_bytes=st.sampled_from([256, 576, 4096]),
    window=st.sampled_from([128, 512, 4096]),
    block=st.sampled_from([16, 128]),
    in_flight=st.sampled_from([2048, 16384]),
)
TOKENS = st.integers(1, 300_000)


@given(kv=LAYOUTS, tokens=TOKENS, more=st.integers(0, 10_000))
def test_more_tokens_never_take_less(kv: KvLayout, tokens: int, more: int) -> None:
    assert kv.request_bytes(tokens + more) >= kv.request_bytes(tokens)
    assert kv.bytes_for_tokens(tokens + more, length=8192) >= kv.bytes_for_tokens(tokens, length=8192)


@given(kv=LAYOUTS, tokens=TOKENS, length=st.integers(1, 131072))
def test_a_cache_for_tokens_holds_them(kv: KvLayout, tokens: int, length: int) -> None:
    room = kv.bytes_for_tokens(tokens, length=length)
    each = min(tokens, length)
    assert kv.tokens(room, length=each) >= tokens - 1


@given(kv=LAYOUTS, count=st.floats(1, 100), length=st.integers(1, 131072))
def test_a_cache_for_requests_holds_them(kv: KvLayout, count: float, length: int) -> None:
    room = kv.bytes_for_requests(count, length=length)
    assert kv.requests(room, length=length) >= count * (1 - 1e-9)
    assert kv.request_bytes(length) <= room


@given(kv=LAYOUTS, room=st.integers(0, 10**11))
def test_the_longest_request_fits_and_a_longer_one_does_not(kv: KvLayout, room: int) -> None:
    longest = kv.longest(room)
    assert longest == 0 or kv.request_bytes(longest) <= room
    if kv.full_layers:
        assert kv.request_bytes(longest + 1) > room


@given(name=st.sampled_from(KNOWN), ranks=st.sampled_from([1, 2, 4, 8, 16]))
def test_a_rank_never_has_less_than_its_share(name: str, ranks: int) -> None:
    alone, together = layout(name).token_bytes, layout(name, ranks=ranks).token_bytes
    assert alone / ranks <= together <= alone
