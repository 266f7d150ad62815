"""The picture "what does keeping the weights cost?", from measured figures.

In: for each model its weights and what the weight cache holds beyond them, and seconds for the weights from
disk and mapped. Out: SVG. Every number in it stands in the figures that it was given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

GIB = 1024**3
MIB = 1024**2
_LEFT, _WIDTH, _ROW = 250, 560, 34
_WEIGHTS, _COST, _DISK, _MAPPED = "#0969da", "#bc4c00", "#8c959f", "#1a7f37"


@dataclass(frozen=True, kw_only=True)
class Cost:
    """One model: bytes on one GPU, seconds for the weights in one engine start (None: not measured)."""

    model: str
    weights_bytes: int
    overhead_bytes: int
    disk_seconds: float | None
    warm_disk_seconds: float | None
    mapped_seconds: float | None

    @property
    def share(self) -> float:
        return self.overhead_bytes / self.weights_bytes


def cost_picture(costs: Sequence[Cost], *, note: str) -> str:
    """Bars of memory, then bars of time; `note` says host, versions and date."""
    widest = max(cost.weights_bytes + cost.overhead_bytes for cost in costs)
    times = [cost for cost in costs if cost.mapped_seconds is not None]
    slowest = max((seconds for cost in times for _, seconds, _ in _seconds(cost)), default=1.0)
    body: list[str] = []
    y = _heading(body, 64, "Memory on the GPU")
    for cost in costs:
        y = _memory_row(body, y, cost, widest)
    if times:
        y = _heading(body, y + 22, "Seconds for the weights in an engine start")
        for cost in times:
            for name, seconds, colour in _seconds(cost):
                y = _time_row(body, y, f"{cost.model}, {name}", seconds, slowest, colour)
    height = y + 34
    body.append(_text(24, height - 14, note, size=12, colour="#57606a"))
    title = "What does keeping the weights cost?"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 {height}" '
        'font-family="system-ui, sans-serif" font-size="14">'
    )
    frame = f'<rect width="960" height="{height}" rx="10" fill="#ffffff"/>'
    lines = [
        head,
        f"<title>{title}</title>",
        frame,
        _text(24, 36, title, size=18, weight=600),
        *body,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _seconds(cost: Cost) -> list[tuple[str, float, str]]:
    rows = (
        ("from disk", cost.disk_seconds, _DISK),
        ("from the page cache", cost.warm_disk_seconds, _DISK),
        ("mapped", cost.mapped_seconds, _MAPPED),
    )
    return [(name, seconds, colour) for name, seconds, colour in rows if seconds is not None]


def _heading(body: list[str], y: int, text: str) -> int:
    body.append(_text(24, y, text, weight=600))
    return y + 14


def _memory_row(body: list[str], y: int, cost: Cost, widest: int) -> int:
    weights = max(2.0, cost.weights_bytes / widest * _WIDTH * 0.62)
    extra = max(2.0, cost.overhead_bytes / widest * _WIDTH * 0.62)
    body.append(_text(24, y + 19, cost.model))
    body.append(_bar(_LEFT, y + 4, weights, _WEIGHTS))
    body.append(_bar(_LEFT + weights, y + 4, extra, _COST))
    said = f"{cost.weights_bytes / GIB:.2f} GiB of weights, {cost.overhead_bytes / MIB:.0f} MiB to keep them"
    body.append(_text(_LEFT + weights + extra + 10, y + 19, f"{said} ({cost.share:.1%})", size=12))
    return y + _ROW


def _time_row(body: list[str], y: int, name: str, seconds: float, slowest: float, colour: str) -> int:
    width = max(2.0, seconds / slowest * _WIDTH)
    body.append(_text(24, y + 19, name))
    body.append(_bar(_LEFT, y + 4, width, colour))
    body.append(_text(_LEFT + width + 10, y + 19, f"{seconds:.2f} s", size=12))
    return y + _ROW - 6


def _bar(x: float, y: float, width: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="20" rx="3" fill="{colour}"/>'


def _text(
    x: float, y: float, text: str, *, size: int = 14, weight: int = 400, colour: str = "#1f2328"
) -> str:
    style = f'font-size="{size}" font-weight="{weight}" fill="{colour}"'
    return f'<text x="{x:.1f}" y="{y}" {style}>{escape(text)}</text>'
