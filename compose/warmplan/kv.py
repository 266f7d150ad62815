"""Bytes of the KV cache: what a token takes on one rank, and what a request of some length does.

In: `ModelFacts`, the number of ranks, bytes of a value. Out: `KvLayout`, or None for an attention that the
formulas do not cover (state-space and linear layers, sparse attention, several kinds of windows): nothing is
guessed. It does not know how large the cache is.

vLLM 0.33 (v1/core/kv_cache_planning.py, v1/kv_cache_interface.py): layers of one kind form groups of equal
size, a block of a group holds `block` tokens of all its layers, and every group takes its blocks from one
pool. A layer with a window keeps the window and the tokens that are being computed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from warmplan.architecture import find_family, head_size
from warmplan.facts import ModelFacts


@dataclass(frozen=True, kw_only=True)
class KvLayout:
    """The KV cache of one rank: layers that keep every token, layers that keep a window, bytes per layer.

    `layer_bytes` is what one token takes in one layer. `window`, `block` and `in_flight` are tokens.
    """

    full_layers: int
    window_layers: int
    layer_bytes: int
    window: int | None
    block: int
    in_flight: int

    @property
    def token_bytes(self) -> int:
        """Bytes of one token while every layer keeps it."""
        return (self.full_layers + self.window_layers) * self.layer_bytes

    @property
    def group_layers(self) -> int:
        """Layers of one group: the smaller number of the two kinds, or the larger when they are close."""
        counts = [count for count in (self.full_layers, self.window_layers) if count]
        smallest, largest = min(counts), max(counts)
        return largest if largest < smallest * 1.5 else smallest

    @property
    def block_bytes(self) -> int:
        """Bytes of one block of one group."""
        return self.group_layers * self.block * self.layer_bytes

    def request_blocks(self, tokens: int) -> int:
        """Blocks that a request of this length holds at most, in all groups together."""
        full = math.ceil(self.full_layers / self.group_layers) * math.ceil(tokens / self.block)
        if self.window is None or tokens == 0:
            return full
        # One block more: a window need not begin where a block does.
        kept = math.ceil(min(self.window - 1 + self.in_flight, tokens) / self.block) + 1
        return full + math.ceil(self.window_layers / self.group_layers) * kept

    def request_bytes(self, tokens: int) -> int:
        """Bytes that a request of this length holds at most, in whole blocks."""
        return self.request_blocks(tokens) * self.block_bytes

    def requests(self, room: int, *, length: int) -> float:
        """How many requests of this length fit into so many bytes at the same time."""
        return (room // self.block_bytes) / self.request_blocks(length)

    def tokens(self, room: int, *, length: int | None) -> int:
        """How many tokens fit into so many bytes, with windows: of requests of this length."""
        if self.window is None:
            return room // self.block_bytes * self.block
        return 0 if length is None else int(self.requests(room, length=length) * length)

    def bytes_for_tokens(self, tokens: int, *, length: int | None) -> int:
        """The least cache that holds so many tokens, with windows: of requests of this length."""
        if self.window is None:
            return self.request_bytes(tokens)
        each = min(tokens, length or tokens)
        return math.ceil(tokens / each * self.request_blocks(each)) * self.block_bytes

    def bytes_for_requests(self, count: float, *, length: int) -> int:
        """The least cache that holds so many requests of this length."""
        return math.ceil(count * self.request_blocks(length)) * self.block_bytes

    def longest(self, room: int) -> int:
        """The longest request, in tokens, that fits into so many bytes; 0 when not even one token does."""
        low, high = 0, max(1, room // self.layer_bytes)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.request_bytes(middle) <= room else (low, middle - 1)
        return low


def plan_kv(
    facts: ModelFacts, *, ranks: int, value_bytes: int, block: int, in_flight: int, windows: bool = True
) -> KvLayout | None:
    """The layout of this model's KV cache on one rank, or None when it is not known.

    `windows` False: every layer keeps every token (`--disable-hybrid-kv-cache-manager`).
    """
    layers = facts.num_hidden_layers
    if find_family(facts) is None or not layers or facts.index_topk is not None:
        return None
    layer_bytes = _layer_bytes(facts, ranks, value_bytes)
    limited = facts.window_layers if facts.sliding_window is not None else 0
    if layer_bytes is None or limited is None:
        return None
    limited = limited if windows else 0
    return KvLayout(
        full_layers=layers - limited,
        window_layers=limited,
        layer_bytes=layer_bytes,
        window=facts.sliding_window if limited else None,
        block=block,
        in_flight=in_flight,
    )


def by_hand(bytes_per_token: int, *, block: int) -> KvLayout:
    """The layout that a number from a person stands for: every layer keeps every token."""
    return KvLayout(
        full_layers=1, window_layers=0, layer_bytes=bytes_per_token, window=None, block=block, in_flight=0
    )


def _layer_bytes(facts: ModelFacts, ranks: int, value_bytes: int) -> int | None:
    """Latent attention: one vector, whole on every rank. Else key and value of the rank's heads.

    With more ranks than key and value heads vLLM repeats heads, so a rank has at least one.
    """
    if facts.kv_lora_rank is not None:
        rope = facts.qk_rope_head_dim
        return None if rope is None else (facts.kv_lora_rank + rope) * value_bytes
    head, heads = head_size(facts), facts.num_key_value_heads or facts.num_attention_heads
    return None if head is None or heads is None else 2 * math.ceil(heads / ranks) * head * value_bytes
