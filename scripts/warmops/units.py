"""Figures as people read them."""

from __future__ import annotations


def mebibytes(count: int | None) -> str:
    """Bytes as MiB, or a dash when the figure is not known."""
    return "-" if count is None else f"{count / 1024**2:,.0f} MiB"


def size(count: int) -> str:
    """Bytes in the largest unit of which there is one: `512 bytes`, `1.5 MiB`, `14.2 GiB`."""
    for unit, bytes_of_it in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if abs(count) >= bytes_of_it:
            return f"{count / bytes_of_it:,.1f} {unit}".replace(".0 ", " ")
    return f"{count} bytes"


def counted(count: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"
