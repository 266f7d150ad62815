"""Where the seconds of each start went, and how fast vLLM's loaders fill a GPU.

In: results of a session, its steps. Out: lines of Markdown and a picture, none where nothing was measured.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warmops.bench import TITLES
from warmops.evidence import StartEvidence
from warmops.phases import UNATTRIBUTED, Phase, unattributed_share
from warmops.report import Run
from warmops.report_svg import render_picture

Facts = Mapping[str, Any]
LOADERS = "loaders.json"
_RESTART = "restart"
_BOTH = "both"
_TITLES = {**TITLES, _BOTH: "the same with both levers"}
# Columns of the table: what is of one kind stands together.
_PARTS: Mapping[str, tuple[str, ...]] = {
    "stop": ("old engine stops",),
    "Python": ("container starts", "begin process", "imports", "configuration", "engine process"),
    "device": ("device",),
    "weights": ("make model", "weights", "finish model"),
    "compile": ("compile: trace", "compile: load", "compile: build", "compile: rest"),
    "graphs": ("KV cache", "graph capture", "warm up"),
}


@dataclass(frozen=True, kw_only=True)
class Timed:
    """One start of a lane. `kind` is that of a comparison or drill; a step has none."""

    lane: str
    name: str
    kind: str
    phases: tuple[Phase, ...]

    @property
    def seconds(self) -> float:
        return sum(phase.seconds for phase in self.phases)


def starts_of(results: Path, steps: Sequence[Facts]) -> list[Timed]:
    """Restarts from their steps, comparisons and drills from their reports."""
    found = [
        _timed(facts["lane"], facts["step"], "", facts["phases"])
        for facts in steps
        if facts.get("phases") and not facts.get("event")
    ]
    for path in sorted(results.glob("*/*.report.json")):
        report = json.loads(path.read_text(encoding="utf-8"))
        for run in report.get("runs", ()):
            if run.get("phases") and "event" not in run:
                name = f"{run['kind']} {run['repetition']}"
                found.append(_timed(path.parent.name, name, run["kind"], run["phases"]))
    return found


def _timed(lane: str, name: str, kind: str, told: Sequence[Facts]) -> Timed:
    phases, end = [], 0.0
    for one in told:
        phases.append(Phase(name=one["name"], begin=one.get("begin", end), seconds=one["seconds"]))
        end = phases[-1].begin + phases[-1].seconds
    return Timed(lane=lane, name=name, kind=kind, phases=tuple(phases))


def starts_table(starts: Sequence[Timed]) -> list[str]:
    if not starts:
        return []
    lines = ["", "## Where the seconds went", ""]
    lines += [f"| lane | start | all | {' | '.join(_PARTS)} | rest | unattributed |"]
    lines += [f"|---|---|---:|{'---:|' * len(_PARTS)}---:|---:|"]
    for start in starts:
        parts = [sum(p.seconds for p in start.phases if p.name in names) for names in _PARTS.values()]
        unknown = sum(p.seconds for p in start.phases if p.name == UNATTRIBUTED)
        cells = [start.seconds, *parts, start.seconds - sum(parts) - unknown]
        shown = " | ".join(f"{abs(cell):.1f}" for cell in cells)
        lines.append(f"| {start.lane} | {start.name} | {shown} | {unattributed_share(start.phases):.1%} |")
    return lines


def picture_of_both(starts: Sequence[Timed]) -> str:
    """Stock and a restart of the lane `bench`, and a compared restart of `levers`: those in the middle."""
    chosen = [
        (kind, _middle([start for start in starts if (start.lane, start.kind) == (lane, measured)]))
        for kind, lane, measured in (
            ("stock", "bench", "stock"),
            (_RESTART, "bench", _RESTART),
            (_BOTH, "levers", _RESTART),
        )
    ]
    runs = [_run(start, kind) for kind, start in chosen if start is not None]
    return render_picture(runs, _TITLES) if len(runs) == len(chosen) else ""


def _middle(starts: Sequence[Timed]) -> Timed | None:
    """The start nearest to the median."""
    if not starts:
        return None
    median = statistics.median(start.seconds for start in starts)
    return min(starts, key=lambda start: abs(start.seconds - median))


def _run(start: Timed, kind: str) -> Run:
    return Run(
        kind=kind,
        repetition=1,
        evidence=StartEvidence(outcome="unknown"),
        findings=(),
        phases=start.phases,
        seconds={},
    )


def loader_table(path: Path) -> list[str]:
    """vLLM's loaders over one checkpoint into an empty GPU."""
    return list(_loader_lines(json.loads(path.read_text(encoding="utf-8")))) if path.exists() else []


def _loader_lines(rows: Sequence[Facts]) -> Iterator[str]:
    yield from ("", "## vLLM's loaders, seconds into a GPU", "")
    yield from ("| loader | page cache | seconds | GiB/s |", "|---|---|---:|---:|")
    for row in rows:
        if "error" in row:
            yield f"| {row['loader']} |  |  | {row['error']} |"
        else:
            figures = f"{row['seconds']:.1f} | {row['gib_per_second']:.2f}"
            yield f"| {row['loader']} | {row['page_cache']} | {figures} |"
