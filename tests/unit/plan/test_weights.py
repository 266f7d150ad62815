"""Weights of public models against published totals, and how vLLM splits them over ranks."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.models import NAMES, public_model
from warmplan import UserError
from warmplan.architecture import table_bytes
from warmplan.weights import (
    Format,
    Ranks,
    Split,
    Stored,
    Tensor,
    check_split,
    checkpoint_bytes,
    rank_bytes,
)

COMPUTED = tuple(name for name in NAMES if public_model(name).tensors is not None)
PUBLISHED = tuple(name for name in COMPUTED if public_model(name).published_bytes is not None)
BF16 = Format(value_bytes=2)


def test_there_are_models_of_many_kinds() -> None:
    assert len(PUBLISHED) >= 12
    architectures = {public_model(name).facts.architecture for name in PUBLISHED}
    assert len(architectures) >= 12


@pytest.mark.parametrize("name", PUBLISHED)
def test_weights_are_within_one_percent_of_the_published_total(name: str) -> None:
    model = public_model(name)
    assert model.tensors is not None
    assert checkpoint_bytes(model.tensors, model.form) == pytest.approx(model.published_bytes, rel=0.01)


@pytest.mark.parametrize("name", PUBLISHED)
def test_they_are_exact_but_for_the_headers_of_files(name: str) -> None:
    """Where the published number is a file's size it holds a header as well: kilobytes, and not weights."""
    model = public_model(name)
    assert model.tensors is not None
    assert model.published_bytes is not None
    missing = model.published_bytes - checkpoint_bytes(model.tensors, model.form)
    files = {"llama-3.2-1b", "qwen2.5-0.5b-instruct", "gemma-3-1b-it", "deepseek-v3"}
    assert (0 < missing < model.published_bytes / 20_000) if name in files else missing == 0


def test_a_hybrid_is_not_computed() -> None:
    assert public_model("qwen3-next-80b-a3b").tensors is None


def test_llama_by_hand() -> None:
    embeddings = 2 * 128256 * 4096
    attention = 2 * 4096 * 4096 + 2 * 1024 * 4096
    layer = attention + 3 * 14336 * 4096 + 2 * 4096
    model = public_model("llama-3.1-8b")
    assert model.tensors is not None
    assert checkpoint_bytes(model.tensors, BF16) == 2 * (embeddings + 32 * layer + 4096)


def test_two_ranks_of_llama_by_hand() -> None:
    """128256 rows are 2004 times 64, so no padding; norms are on both ranks."""
    split = 2 * 128256 * 4096 + 32 * (2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14336 * 4096)
    norms = (32 * 2 + 1) * 4096
    model = public_model("llama-3.1-8b")
    assert model.tensors is not None
    assert rank_bytes(model.tensors, BF16, Ranks(count=2)) == 2 * (split // 2 + norms)


def test_key_heads_are_repeated_when_there_are_more_ranks() -> None:
    """Llama's 8 key heads on 16 ranks: every rank holds one of each, twice their equal share."""
    model = public_model("llama-3.1-8b")
    assert model.tensors is not None
    keys = [tensor for tensor in model.tensors if tensor.name == "key, value"]
    assert rank_bytes(keys, BF16, Ranks(count=16)) * 16 == 2 * checkpoint_bytes(keys, BF16)


def test_latent_attention_repeats_what_makes_the_latent() -> None:
    model = public_model("deepseek-v2-lite")
    assert model.tensors is not None
    latent = [tensor for tensor in model.tensors if tensor.name == "latent"]
    # 27 layers, 512 + 64 rows of 2048.
    assert rank_bytes(latent, BF16, Ranks(count=8)) == 27 * 576 * 2048 * 2


def test_tables_are_the_bytes_that_are_mapped_beside_the_weights() -> None:
    """vLLM 0.32.0 on the CPU maps 270 079 072 bytes of SmolLM2-135M, whose weights are 269 030 016."""
    assert table_bytes(public_model("smollm2-135m-instruct").facts, 2) == 270_079_072 - 269_030_016


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama-3.1-8b", 131072 * 128 * 2 + 32 * 16),
        ("gemma-3-1b-it", 2 * 32768 * 256 * 2 + 26 * 16),
        ("deepseek-v3", 163840 * 64 * 4 + 61 * 16),
        ("gpt-oss-20b", 131072 * 64 * 4 + 24 * 16),
        ("qwen3-next-80b-a3b", 0),
    ],
)
def test_tables_by_hand(name: str, expected: int) -> None:
    assert table_bytes(public_model(name).facts, 2) == expected


def test_fp8_in_tiles_by_hand() -> None:
    """A matrix of 300 by 200 in tiles of 128 by 128: 3 times 2 scales of 4 bytes."""
    matrix = Tensor(name="m", copies=1, units=300, other=200, stored=Stored.FP8)
    assert checkpoint_bytes([matrix], Format(value_bytes=2, weight_block=128)) == 300 * 200 + 6 * 4
    assert checkpoint_bytes([matrix], Format(value_bytes=2)) == 300 * 200 + 4


def test_the_draft_layer_is_in_the_checkpoint_and_not_in_memory() -> None:
    model = public_model("deepseek-v3")
    assert model.tensors is not None
    kept = [tensor for tensor in model.tensors if not tensor.made]
    # A layer of experts, and an embedding and output of its own.
    draft = checkpoint_bytes(kept, model.form) - rank_bytes(kept, model.form, Ranks())
    experts = 3 * 256 * 2048 * 7168
    ends = 2 * 129280 * 7168 * 2
    assert experts + ends < draft < 1.05 * (experts + ends)


def test_four_bit_experts_are_padded_in_memory() -> None:
    """gpt-oss-20b: 2880 by 2880 becomes 2944 by 3072, 4 bits and an 8-bit scale for 32 values."""
    model = public_model("gpt-oss-20b")
    assert model.tensors is not None
    experts = [tensor for tensor in model.tensors if tensor.stored is Stored.FP4]
    one = 2944 * 3072
    assert rank_bytes(experts, BF16, Ranks()) == 24 * 32 * 3 * (one // 2 + one // 32)


@pytest.mark.parametrize(
    ("name", "ranks", "expected"),
    [
        ("llama-3.1-8b", 3, "cannot split 32 attention heads over 3 ranks"),
        ("qwen2.5-0.5b-instruct", 4, "cannot split 14 attention heads over 4 ranks"),
        ("smollm2-135m-instruct", 2, "cannot split 9 attention heads over 2 ranks"),
        ("gemma-2b", 16, "cannot split 8 attention heads over 16 ranks"),
        ("mixtral-8x7b-v0.1", 8, None),
        ("gemma-2b", 8, None),
    ],
)
def test_what_vllm_cannot_split(name: str, ranks: int, expected: str | None) -> None:
    tensors = public_model(name).tensors
    assert tensors is not None
    if expected is None:
        check_split(tensors, Ranks(count=ranks))
        return
    with pytest.raises(UserError, match=expected):
        check_split(tensors, Ranks(count=ranks))


def test_the_hint_names_ranks_that_work() -> None:
    tensor = Tensor(name="query", copies=1, units=14, unit=64, other=896, split=Split.HEADS)
    with pytest.raises(UserError, match="hint: use 2 or 7"):
        check_split([tensor], Ranks(count=4))


RANKS = st.sampled_from([1, 2, 4, 8])


@given(name=st.sampled_from(COMPUTED), count=RANKS, experts=st.booleans())
def test_ranks_together_hold_the_whole_and_what_is_repeated(name: str, count: int, experts: bool) -> None:
    model = public_model(name)
    assert model.tensors is not None
    ranks = Ranks(count=count, expert_parallel=experts)
    for tensor in model.tensors:
        if not tensor.loaded or tensor.stored is not Stored.PLAIN:
            continue
        try:
            held = sum(rank_bytes([tensor], BF16, ranks, rank) for rank in range(count))
        except UserError:
            continue
        whole = 2 * tensor.values
        if tensor.experts and experts:
            assert held == whole
        elif tensor.split is Split.WHOLE:
            assert held == count * whole
        elif tensor.split is Split.KV_HEADS:
            assert held == whole * max(1, count // tensor.units)
        elif tensor.split is Split.VOCABULARY:
            assert held == whole // tensor.units * math.ceil(tensor.units / 64) * 64
        else:
            assert held == whole


@given(name=st.sampled_from(COMPUTED), count=RANKS, experts=st.booleans())
def test_more_ranks_never_need_more_on_one(name: str, count: int, experts: bool) -> None:
    model = public_model(name)
    assert model.tensors is not None
    try:
        fewer = rank_bytes(model.tensors, model.form, Ranks(count=count, expert_parallel=experts))
        more = rank_bytes(model.tensors, model.form, Ranks(count=2 * count, expert_parallel=experts))
    except UserError:
        return
    assert more <= fewer
    assert fewer <= checkpoint_bytes(model.tensors, model.form) * 1.1


@given(
    experts=st.integers(1, 300),
    count=st.integers(1, 64),
    layers=st.integers(1, 5),
    form=st.sampled_from([Stored.PLAIN, Stored.FP8]),
)
def test_every_expert_is_on_one_rank(experts: int, count: int, layers: int, form: Stored) -> None:
    tensor = Tensor(
        name="experts",
        copies=layers * experts,
        units=128,
        other=256,
        split=Split.EVEN,
        stored=form,
        experts=experts,
    )
    ranks = Ranks(count=count, expert_parallel=True)
    held = [rank_bytes([tensor], BF16, ranks, rank) for rank in range(count)]
    assert sum(held) == checkpoint_bytes([tensor], BF16)
    assert held[0] == max(held)
