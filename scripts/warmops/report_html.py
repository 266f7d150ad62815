"""The report as one HTML file that stands alone: no script, no font, no request to anywhere.

In: a `Report`. Out: a page with the verdict, a picture of phases over time, and every finding.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from html import escape
from pathlib import Path

from warmops.phases import PHASE_NAMES, UNATTRIBUTED
from warmops.report import Report, Run
from warmops.report_page import facts_table, findings_table, page
from warmops.units import counted, mebibytes

_COLOURS = (
    "#9aa5b1",
    "#7b8794",
    "#52606d",
    "#c99a2e",
    "#b8860b",
    "#a8a29e",
    "#3b7dd8",
    "#6ba3e8",
    "#2f9e5f",
    "#7c5cc4",
)
_FIRST_TOKEN_COLOUR = "#d6456b"
_LEFT, _WIDTH, _ROW, _BAR = 190, 720, 26, 18


def render_html(report: Report) -> str:
    """The whole page as text."""
    facts = {
        "model": report.model,
        "environment": report.environment,
        "project": report.project,
        "identity": report.identity,
        "started": report.started_at,
        **report.host,
    }
    findings = [(f"{run.kind} #{run.repetition}", finding) for run in report.runs for finding in run.findings]
    parts = [
        f"<p>{_verdict(report)}</p>{facts_table(facts)}",
        _bench(report),
        f"<h2>Phases of each engine start</h2>{_legend(report.runs)}{render_svg(report.runs)}",
        f"<h2>Starts</h2>{_starts(report.runs)}",
        f"<h2>Expectations</h2>{findings_table('start', findings)}",
    ]
    return page(report.model, parts)


def write_html(report: Report, folder: Path) -> Path:
    path = folder / "report.html"
    path.write_text(render_html(report), encoding="utf-8")
    return path


def render_svg(runs: Sequence[Run]) -> str:
    """One bar for each start, one colour for each phase, a scale in seconds below."""
    longest = max((p.begin + p.seconds for run in runs for p in run.phases), default=0.0) or 1.0
    scale = _WIDTH / longest
    height = len(runs) * _ROW + 30
    rows = [_bar(run, index, scale) for index, run in enumerate(runs)]
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500, 10**9) if longest / s <= 12)
    ticks = [
        f'<line x1="{_LEFT + at * scale:.1f}" x2="{_LEFT + at * scale:.1f}" y1="0" y2="{height - 24}" '
        f'stroke="currentColor" stroke-opacity=".15"/>'
        f'<text x="{_LEFT + at * scale:.1f}" y="{height - 8}" text-anchor="middle">{at} s</text>'
        for at in range(0, int(longest) + 1, step)
    ]
    size = f'viewBox="0 0 {_LEFT + _WIDTH + 70} {height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">{"".join(ticks + rows)}</svg>'


def _bar(run: Run, index: int, scale: float) -> str:
    top = index * _ROW + 4
    label = _name(run)
    parts = [f'<text x="{_LEFT - 8}" y="{top + 13}" text-anchor="end">{label}</text>']
    for phase in run.phases:
        x, width = _LEFT + phase.begin * scale, max(phase.seconds * scale, 0.5)
        title = escape(f"{phase.name}: {phase.seconds:.3f} s")
        parts.append(
            f'<rect x="{x:.1f}" y="{top}" width="{width:.1f}" height="{_BAR}" fill="{_colour(phase.name)}">'
            f"<title>{title}</title></rect>"
        )
    end = max((p.begin + p.seconds for p in run.phases), default=0.0)
    words = f"{end:.1f} s" if run.phases else "no moments known"
    parts.append(f'<text x="{_LEFT + end * scale + 6:.1f}" y="{top + 13}">{words}</text>')
    return "".join(parts)


def _colour(phase: str) -> str:
    if phase == UNATTRIBUTED:
        return "#d0d0d0"
    if phase == PHASE_NAMES[-1]:
        return _FIRST_TOKEN_COLOUR
    return _COLOURS[PHASE_NAMES.index(phase) % len(_COLOURS)]


def _legend(runs: Sequence[Run]) -> str:
    used = {phase.name for run in runs for phase in run.phases}
    names = [name for name in (*PHASE_NAMES, UNATTRIBUTED) if name in used]
    keys = (f'<span class=key><i style="background:{_colour(n)}"></i>{escape(n)}</span>' for n in names)
    return f"<p>{''.join(keys)}</p>"


def _verdict(report: Report) -> str:
    count = counted(len(report.runs), "start")
    failed = sum(1 for run in report.runs if not run.passed)
    if report.passed:
        return f"<span class=ok>Passed:</span> {count}, each as declared."
    return f"<span class=bad>Failed:</span> {failed} of {count} not as declared."


def _bench(report: Report) -> str:
    bench = report.bench
    if bench is None:
        return ""
    stock, warm = statistics.median(bench.stock_seconds), statistics.median(bench.warm_seconds)
    return (
        "<h2>Restart to first token</h2><table><tr><th>stock vllm serve from disk, median"
        f"<th>warm restart, median<th>stock / warm<th>page cache<th>same answer</tr><tr><td>{stock:.2f} s"
        f"<td>{warm:.2f} s<td>{bench.ratio:.2f}<td>{escape(bench.page_cache)}"
        f"<td>{'yes' if bench.same_answer else 'no'}</tr></table>"
    )


def _starts(runs: Sequence[Run]) -> str:
    head = "<tr><th>start<th>outcome<th>tensors<th>mapped<th>seconds<th>memory (PSS)</tr>"
    rows = []
    for run in runs:
        outcome = run.evidence.outcome + (f": {run.evidence.reason}" if run.evidence.reason else "")
        seconds = "<br>".join(escape(f"{name} {value:.2f}") for name, value in run.seconds.items())
        memory = "<br>".join(escape(f"{name} {mebibytes(value)}") for name, value in run.memory_bytes.items())
        rows.append(
            f"<tr><td>{_name(run)}<td>{escape(outcome)}<td>{run.evidence.tensors or '-'}<td>"
            f"{mebibytes(run.evidence.mapped_bytes)}<td>{seconds}<td>{memory}</tr>"
        )
    return f"<table>{head}{''.join(rows)}</table>"


def _name(run: Run) -> str:
    return escape(f"{run.kind} #{run.repetition}")
