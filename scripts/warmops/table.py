"""Plain tables for facts that people paste into an issue.

In: a header and rows of text. Out: aligned columns on stdout, no frames and no wrapping; colour only on a
terminal, and never with `NO_COLOR`. Rich is not used here: its import costs more than these commands do.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

GREEN, YELLOW, RED, DIM = "32", "33", "31", "2"


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as their widest cell; the last one is not filled up."""
    for line in table_lines(header, rows):
        print(line)


def table_lines(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [tuple(header), *(tuple(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def coloured(text: str, colour: str) -> str:
    """The text in a colour where stdout is a terminal that may have one."""
    if os.environ.get("NO_COLOR") or not sys.stdout.isatty():
        return text
    return f"\x1b[{colour}m{text}\x1b[0m"
