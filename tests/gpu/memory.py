"""The memory plan against what the driver counts: rows, each within 3 % or not.

In: the plan's parts in bytes, measured MiB of one GPU. Out: `Row`s. Refuses to know: where either comes from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

MIB = 1024**2
GIB = 1024**3
LIMIT = 0.03
WEIGHT_CACHE = ("weights", "tables", "weight_cache_context")
ENGINE = ("engine_context", "graphs", "activations", "kv_cache")

# What vLLM 0.33 logs of its own memory and time; the last line that matches counts.
_FACTS = {
    "graphs_gib": re.compile(r"Graph capturing finished in \d+ secs, took (-?[\d.]+) GiB"),
    "graph_seconds": re.compile(r"Graph capturing finished in (\d+) secs"),
    "load_gib": re.compile(r"Model loading took ([\d.]+) ?GiB"),
    "load_seconds": re.compile(r"Model loading took [\d.]+ ?GiB(?: memory)? and ([\d.]+) seconds"),
    "read_seconds": re.compile(r"Loading weights took ([\d.]+) seconds"),
    "compile_seconds": re.compile(r"torch\.compile took ([\d.]+) s"),
    "kv_tokens": re.compile(r"GPU KV cache size: ([\d,]+) tokens"),
    "mapped_tensors": re.compile(r"Mapped (\d+) tensors from the weight cache daemon"),
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the comparison; `share` is how far the plan is off, as a share of what was measured."""

    what: str
    planned_bytes: int
    measured_bytes: int

    @property
    def share(self) -> float:
        return (
            (self.planned_bytes - self.measured_bytes) / self.measured_bytes if self.measured_bytes else 1.0
        )

    @property
    def ok(self) -> bool:
        return abs(self.share) <= LIMIT

    def facts(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "planned_mib": round(self.planned_bytes / MIB),
            "measured_mib": round(self.measured_bytes / MIB),
            "off_percent": round(self.share * 100, 2),
            "ok": self.ok,
        }


def compare(
    parts: Mapping[str, int], *, weight_cache_mib: int, engine_mib: int, surge_mib: int | None = None
) -> list[Row]:
    """Weight cache, engine, a second engine if there was one, and the sum. `parts` are bytes by key."""
    surge = {f"surge_{key}" for key in ENGINE}
    rows = [
        _row("weight cache", parts, WEIGHT_CACHE, weight_cache_mib),
        _row("engine", parts, ENGINE, engine_mib),
    ]
    keys = (*WEIGHT_CACHE, *ENGINE)
    if surge_mib is not None:
        planned = (
            parts if surge <= parts.keys() else {**parts, **{f"surge_{key}": parts[key] for key in ENGINE}}
        )
        rows.append(_row("second engine", planned, sorted(surge), surge_mib))
        return [
            *rows,
            _row("sum", planned, (*keys, *sorted(surge)), weight_cache_mib + engine_mib + surge_mib),
        ]
    return [*rows, _row("sum", parts, keys, weight_cache_mib + engine_mib)]


def overhead(*, weight_cache_mib: int, weights_bytes: int) -> dict[str, Any]:
    """What keeping the weights costs beyond the weights: bytes on one GPU, and as a share of them."""
    beyond = weight_cache_mib * MIB - weights_bytes
    return {
        "weight_cache_mib": weight_cache_mib,
        "weights_bytes": weights_bytes,
        "overhead_bytes": beyond,
        "overhead_share": round(beyond / weights_bytes, 5),
    }


def log_facts(lines: Iterable[str]) -> dict[str, float]:
    """Numbers from an engine's log since its last start."""
    found: dict[str, float] = {}
    for line in lines:
        for name, pattern in _FACTS.items():
            match = pattern.search(line)
            if match:
                found[name] = float(match[1].replace(",", ""))
    return found


def _row(what: str, parts: Mapping[str, int], keys: Iterable[str], mib: int) -> Row:
    return Row(what=what, planned_bytes=sum(parts.get(key, 0) for key in keys), measured_bytes=mib * MIB)
