"""The nearest plan that fits, for a plan that does not.

In: the room that is left for the KV cache of one rank, its layout, what was wished. Out: a hint with concrete
values. It does not know why there is so little room.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from warmplan.constants import GIB
from warmplan.kv import KvLayout


@dataclass(frozen=True, kw_only=True)
class KvWish:
    """In which unit the KV cache was wished; neither: in GiB."""

    tokens: bool
    concurrency: bool


def nearest_plan(
    *,
    room: int,
    kv: KvLayout | None,
    length: int | None,
    wish: KvWish,
    without: str | None,
    fitting_tensor: int | None,
) -> str:
    """What would fit, the smallest change first; more GPUs only where no cache for a full request fits.

    `room` are the bytes of KV cache that would fit (negative: none). `without`: the setting that gives up the
    second engine, where that alone is enough. `fitting_tensor`: a larger number of GPUs for which the same
    wish fits.
    """
    smaller = _smaller_cache(room, kv, length, wish)
    offers = [smaller] if smaller is not None else []
    if without is not None:
        offers.append(without)
    if fitting_tensor is not None and (not offers or offers[0].startswith("engine.max_model_len")):
        offers.append(f"parallel.tensor {fitting_tensor}")
    if not offers:
        return "use a smaller or a quantised model, or larger GPUs"
    return f"{' or '.join(offers)} would fit"


def _smaller_cache(room: int, kv: KvLayout | None, length: int | None, wish: KvWish) -> str | None:
    """The wish for less KV cache, with a shorter length where one full request no longer fits."""
    size = math.floor(room / GIB * 100) / 100
    if size <= 0:
        return None
    if kv is None or length is None:
        return f"engine.kv_cache.gib {size:g}"
    if kv.request_bytes(length) > int(size * GIB):
        longest = kv.longest(int(size * GIB))
        return f"engine.max_model_len {longest} with engine.kv_cache.gib {size:g}" if longest else None
    if wish.tokens:
        return f"engine.kv_cache.tokens {kv.tokens(room, length=length)}"
    if wish.concurrency:
        return f"engine.kv_cache.concurrency {math.floor(kv.requests(room, length=length) * 10) / 10:g}"
    return f"engine.kv_cache.gib {size:g}"
