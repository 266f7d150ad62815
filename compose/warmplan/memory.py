"""The memory plan as people read it: rows, a bar, and what the numbers mean.

In: a budget. Out: rows and text, the same for plan.md and for a terminal, and an object for programs. It
computes nothing that `budget` has not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from warmplan.budget import TELL_SIZE, Budget, Part
from warmplan.constants import GIB, gib
from warmplan.document import Json

BAR_WIDTH: Final = 64
_FREE: Final = "·"
# A letter for each part of a bar; parts that share one are one piece of the picture.
_LETTERS: Final = {
    "weights": "W",
    "tables": "W",
    "reload": "R",
    "copy": "M",
    "kv_cache": "K",
    "weight_cache_context": "c",
    "engine_context": "c",
    "weight_cache": "p",
    "engine": "e",
    "graphs": "g",
    "activations": "a",
    "headroom": "h",
}
_LEGEND: Final = {
    "W": "weights and tables",
    "R": "second copy during a reload",
    "M": "copy after a miss",
    "K": "KV cache",
    "c": "CUDA contexts",
    "p": "weight-cache process",
    "e": "engine process",
    "g": "CUDA graphs",
    "a": "activations",
    "S": "second engine",
    "h": "headroom",
    _FREE: "free",
}


@dataclass(frozen=True, kw_only=True)
class Piece:
    """One piece of the bar: a letter, its meaning, bytes, and its width in characters."""

    letter: str
    name: str
    bytes: int
    width: int


def bar_pieces(budget: Budget, *, width: int = BAR_WIDTH) -> tuple[Piece, ...]:
    """The pieces of one GPU (or of what the stack takes of the host), in order, `width` characters together.

    What is there is seen: a piece has at least one character, taken from the widest.
    """
    sizes: dict[str, int] = {}
    for part in budget.parts:
        if part.bytes > 0:
            letter = "S" if part.key.startswith("surge_") else _LETTERS[part.key]
            sizes[letter] = sizes.get(letter, 0) + part.bytes
    if budget.free_bytes:
        sizes[_FREE] = budget.free_bytes
    widths = _widths(list(sizes.values()), width)
    return tuple(
        Piece(letter=letter, name=_LEGEND[letter], bytes=size, width=columns)
        for (letter, size), columns in zip(sizes.items(), widths, strict=True)
    )


def bar_lines(budget: Budget, *, width: int = BAR_WIDTH) -> Iterator[str]:
    """The bar and its legend as text."""
    pieces = bar_pieces(budget, width=width)
    yield f"[{''.join(piece.letter * piece.width for piece in pieces)}]"
    for piece in pieces:
        yield f"{piece.letter} {piece.name}: {gib(piece.bytes)}"


def meaning_lines(budget: Budget) -> Iterator[str]:
    """What the numbers mean for a user, a sentence each."""
    if budget.free_bytes is not None and budget.memory_bytes is not None:
        yield f"One GPU has {gib(budget.memory_bytes)}; {gib(budget.free_bytes)} stay free."
    if budget.rank_weight_bytes is None:
        yield f"The size of the weights is not known, so neither is what would fit: {TELL_SIZE}."
    if budget.kv_cache_tokens is not None:
        each = f"{budget.kv_bytes_per_token} bytes on one rank"
        yield f"KV cache: {budget.kv_cache_tokens} tokens; a token takes {each}."
    elif budget.kv_layout is None:
        yield "How many tokens the KV cache holds is not known for this model."
    layout = budget.kv_layout
    if layout is not None and layout.window is not None:
        of = layout.full_layers + layout.window_layers
        yield f"{layout.window_layers} of {of} layers keep only the last {layout.window} tokens."
    if budget.full_length_requests is not None and budget.length_tokens is not None:
        many = f"{budget.full_length_requests:.1f} of {budget.length_tokens} tokens"
        yield f"Requests of full length at the same time: {many}."
    beside = "" if budget.second == "none" else " beside a second engine"
    if budget.largest_rank_weight_bytes is not None:
        largest = budget.largest_rank_weight_bytes
        every = f", {gib(largest * budget.ranks)} over {budget.ranks} GPUs" if budget.ranks > 1 else ""
        yield f"Largest model that would still fit{beside}: {gib(largest)} of weights on one GPU{every}."
    if budget.largest_kv_cache_bytes is not None:
        yield f"Largest KV cache that would still fit{beside}: {gib(budget.largest_kv_cache_bytes)}."
    yield _second_engine(budget)
    if budget.utilization is not None:
        share = f"{budget.utilization:.4f}"
        yield f"`--gpu-memory-utilization` {share}: weights, KV cache, graphs and activations as a share."
    shm = f"{budget.shm_bytes} bytes ({gib(budget.shm_bytes)})"
    yield f"/dev/shm: {shm}, a limit that is filled only as needed."


def memory_facts(budget: Budget) -> dict[str, Json]:
    """The memory plan for programs; sizes in bytes."""
    return {
        "parts": [_part_facts(part) for part in budget.parts],
        "total_bytes": budget.total_bytes,
        "gpu_memory_bytes": budget.memory_bytes,
        "free_bytes": budget.free_bytes,
        "ranks": budget.ranks,
        "weight_bytes": budget.weight_bytes,
        "rank_weight_bytes": budget.rank_weight_bytes,
        "weight_bytes_from": budget.weight_bytes_from,
        "kv_cache_bytes": budget.kv_cache_bytes,
        "kv_cache_tokens": budget.kv_cache_tokens,
        "kv_bytes_per_token": budget.kv_bytes_per_token,
        "full_length_tokens": budget.length_tokens,
        "full_length_requests": budget.full_length_requests,
        "largest_rank_weight_bytes": budget.largest_rank_weight_bytes,
        "largest_kv_cache_bytes": budget.largest_kv_cache_bytes,
        "gpu_memory_utilization": budget.utilization,
        "shm_bytes": budget.shm_bytes,
        "second_engine": budget.second,
        "surge_bytes": budget.surge_bytes,
    }


def gib_number(count: int) -> str:
    """Bytes as GiB without the unit, for a column of a table."""
    return f"{count / GIB:.2f}"


def size_columns(part: Part) -> tuple[str, str]:
    """GiB and bytes of a line as text; question marks for a size that nobody has told."""
    return (gib_number(part.bytes), str(part.bytes)) if part.known else ("?", "?")


def _second_engine(budget: Budget) -> str:
    """What happens to requests when a setting of the engine changes."""
    if budget.second == "none":
        return "No second engine: a changed setting restarts the engine while requests are held."
    size = gib(budget.surge_bytes)
    if budget.second == "standby":
        return f"A standby engine, always there ({size}), takes over when the first one dies."
    looks = "" if budget.memory_bytes is not None else " It looks whether the host has that free."
    return f"A roll starts a second engine beside the first and needs {size} for its minutes.{looks}"


def _part_facts(part: Part) -> Json:
    size = part.bytes if part.known else None
    return {"key": part.key, "name": part.name, "bytes": size, "source": part.source}


def _widths(sizes: list[int], width: int) -> list[int]:
    """Whole characters for each size, at least one, `width` together."""
    total = sum(sizes)
    widths = [max(1, round(size / total * width)) for size in sizes]
    while (off := sum(widths) - width) != 0:
        widest = max(range(len(widths)), key=lambda index: widths[index])
        widths[widest] -= 1 if off > 0 else -1
    return widths
