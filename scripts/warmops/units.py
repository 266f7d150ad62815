"""Figures as people read them."""

from __future__ import annotations


def mebibytes(count: int | None) -> str:
    """Bytes as MiB, or a dash when the figure is not known."""
    return "-" if count is None else f"{count / 1024**2:,.0f} MiB"


def counted(count: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"
