"""The moments of an engine start, in order, and the log lines that give some of them.

In: log lines with their times. Out: a name and a unix second for each moment that is found. The table is
`vllm-image/warmstack_engine/phases.json`: the engine's PID 1 reads the same file for its /metrics.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from warmops.pins import REPOSITORY

TABLE = REPOSITORY / "vllm-image" / "warmstack_engine" / "phases.json"


@dataclass(frozen=True, kw_only=True)
class Moment:
    """`phase` is what ends at it. `needed`: a start without it has a gap that nothing explains.

    `last`: each rank, or each graph, writes such a line, and the last one counts.
    """

    name: str
    phase: str
    source: Literal["host", "mark", "log"]
    needed: bool
    last: bool
    pattern: re.Pattern[str] | None


def read_table() -> tuple[Moment, ...]:
    return tuple(
        Moment(
            name=row["moment"],
            phase=row.get("phase", ""),
            source=row["source"],
            needed=row.get("needed", False),
            last=row.get("last", False),
            pattern=re.compile(row["pattern"]) if "pattern" in row else None,
        )
        for row in json.loads(TABLE.read_text(encoding="utf-8"))
    )


MOMENTS = read_table()


def moments_in(lines: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    """Unix second of each moment that a log line gives; lines without a time give none."""
    found: dict[str, float] = {}
    for text, t in lines:
        for moment in MOMENTS:
            seen = moment.pattern is not None and moment.pattern.search(text) is not None
            if seen and t is not None and (moment.last or moment.name not in found):
                found[moment.name] = t
    return found
