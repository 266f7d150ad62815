"""Bytes of a model's weights: of the checkpoint, and of each rank after vLLM has split them.

In: tensors by shape, with how vLLM splits each. Out: bytes. It knows no model: `architecture` lists the
tensors.

vLLM 0.33 (layers/linear.py, vocab_parallel_embedding.py, fused_moe): column- and row-parallel layers are
split evenly and refuse sizes that do not divide; key and value heads are repeated when there are fewer than
ranks; a vocabulary is padded to 64 rows before it is split; with expert parallelism each rank holds whole
experts; norms, routers and latent projections are on every rank.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from warmplan.errors import Problem, UserError

VOCABULARY_PADDING: Final = 64
# The most that a CUDA backend of vLLM 0.33 pads (fused_moe/oracle/mxfp4.py: Marlin, TensorRT-LLM).
FP4_SIDE_PADDING: Final = 128
FP4_HIDDEN_PADDING: Final = 256
_FP4_BLOCK: Final = 32
_SCALE_BYTES: Final = 4


class Split(Enum):
    """What a rank holds of a tensor."""

    WHOLE = "all of it"
    EVEN = "an equal part; the unit is one row or column"
    HEADS = "its query heads"
    KV_HEADS = "its key and value heads, at least one"
    VOCABULARY = "its part of the padded vocabulary"


class Stored(Enum):
    """How values are stored."""

    PLAIN = "in the model's number format"
    FP8 = "8 bits, with a scale for each tile or for the tensor"
    FP4 = "4 bits, with an 8-bit scale for 32 values"
    FLOAT32 = "32 bits"


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """`copies` tensors of equal shape: `units` times `unit` values along the split side, times `other`.

    A vector has `other` 1. `experts`: that many copies are the experts of one layer, and with expert
    parallelism a rank holds some of them whole. `loaded` False: in the checkpoint only; `stored` says how,
    and `made` True: made from others after loading, so not in the checkpoint.
    """

    name: str
    copies: int
    units: int
    unit: int = 1
    other: int = 1
    split: Split = Split.WHOLE
    stored: Stored = Stored.PLAIN
    experts: int | None = None
    loaded: bool = True
    made: bool = False

    @property
    def values(self) -> int:
        """How many numbers all copies hold together."""
        return self.copies * self.units * self.unit * self.other


@dataclass(frozen=True, kw_only=True)
class Format:
    """Bytes of a plain value, and the edge of the tile that shares an fp8 scale (None: one per tensor)."""

    value_bytes: int
    weight_block: int | None = None


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """How a model is split. `expert_parallel`: whole experts instead of a part of each."""

    count: int = 1
    expert_parallel: bool = False


def checkpoint_bytes(tensors: Iterable[Tensor], form: Format) -> int:
    """Bytes of all tensors as stored, those included that serving does not load."""
    stored = (tensor for tensor in tensors if not tensor.made)
    return sum(tensor.copies * _one(tensor, tensor.units * tensor.unit, form) for tensor in stored)


def rank_bytes(tensors: Iterable[Tensor], form: Format, ranks: Ranks, rank: int = 0) -> int:
    """Bytes that one rank holds; rank 0 never holds less than another.

    Errors: `UserError` (exit code 2, key `parallel.tensor`) when vLLM could not split a tensor.
    """
    return sum(_part(tensor, form, ranks, rank) for tensor in tensors if tensor.loaded)


def check_heads(heads: int, count: int) -> None:
    """vLLM divides the attention heads of every model over the ranks, whatever else it repeats."""
    _units_of_rank(Tensor(name="query", copies=1, units=heads, split=Split.HEADS), Ranks(count=count))


def check_split(tensors: Iterable[Tensor], ranks: Ranks) -> None:
    """Raise `UserError` when vLLM would refuse to split one of these over so many ranks."""
    for tensor in tensors:
        if tensor.loaded and not (tensor.experts and ranks.expert_parallel):
            _units_of_rank(tensor, ranks)


def _part(tensor: Tensor, form: Format, ranks: Ranks, rank: int) -> int:
    if tensor.experts is not None and ranks.expert_parallel:
        layers = tensor.copies // tensor.experts
        base, more = divmod(tensor.experts, ranks.count)
        held = base + (1 if rank < more else 0)
        return layers * held * _held(tensor, tensor.units, form)
    return tensor.copies * _held(tensor, _units_of_rank(tensor, ranks), form)


def _held(tensor: Tensor, units: int, form: Format) -> int:
    """Bytes of one copy in a rank's memory, where 4-bit kernels want sides of full tiles."""
    if tensor.stored is not Stored.FP4:
        return _one(tensor, units * tensor.unit, form)
    padded = replace(tensor, other=_round_up(tensor.other, FP4_HIDDEN_PADDING))
    return _one(padded, _round_up(units, FP4_SIDE_PADDING) * tensor.unit, form)


def _round_up(count: int, step: int) -> int:
    return math.ceil(count / step) * step


def _units_of_rank(tensor: Tensor, ranks: Ranks) -> int:
    units, count = tensor.units, ranks.count
    if tensor.split is Split.WHOLE:
        return units
    if tensor.split is Split.VOCABULARY:
        units = _round_up(units, VOCABULARY_PADDING)
    if tensor.split is Split.KV_HEADS and units <= count:
        # Repeated: each head stands on `count / units` ranks.
        if count % units == 0:
            return 1
    elif units % count == 0:
        return units // count
    what = {
        Split.HEADS: f"{units} attention heads",
        Split.KV_HEADS: f"{units} key and value heads",
        Split.VOCABULARY: f"a vocabulary of {units}",
    }.get(tensor.split, f"{units} columns of {tensor.name}")
    raise UserError(
        Problem(
            key="parallel.tensor",
            problem=f"vLLM cannot split {what} over {count} ranks",
            hint=_hint(units, count, repeated=tensor.split is Split.KV_HEADS),
        )
    )


def _hint(units: int, count: int, *, repeated: bool) -> str:
    fits = [n for n in range(1, 65) if units % n == 0 or (repeated and n % units == 0)]
    below = max((n for n in fits if n < count), default=1)
    above = min((n for n in fits if n > count), default=None)
    return f"use {below} or {above}" if above is not None else f"use {below}"


def _one(tensor: Tensor, side: int, form: Format) -> int:
    """Bytes of one copy whose split side has `side` values."""
    values = side * tensor.other
    if tensor.stored is Stored.PLAIN:
        return values * form.value_bytes
    if tensor.stored is Stored.FLOAT32:
        return values * 4
    if tensor.stored is Stored.FP4:
        return values // 2 + math.ceil(values / _FP4_BLOCK)
    block = form.weight_block
    tiles = 1 if block is None else math.ceil(side / block) * math.ceil(tensor.other / block)
    return values + tiles * _SCALE_BYTES
