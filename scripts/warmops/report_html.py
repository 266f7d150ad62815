"""The report as one HTML file that stands alone: no script, no font, no request to anywhere.

In: a `Report`. Out: a page with the verdict, a picture of phases over time, and every finding.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from warmops.phases import PHASE_NAMES, UNATTRIBUTED
from warmops.report import Report, Run
from warmops.report_page import facts_table, findings_table, page
from warmops.report_svg import COLOURS, name_of, render_svg
from warmops.units import counted, mebibytes


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


def _legend(runs: Sequence[Run]) -> str:
    used = {phase.name for run in runs for phase in run.phases}
    names = [name for name in (*PHASE_NAMES, UNATTRIBUTED) if name in used]
    keys = (f'<span class=key><i style="background:{COLOURS[n]}"></i>{escape(n)}</span>' for n in names)
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
    rows = [
        f"<tr><td>{escape(one.title)}<td>{one.median:.2f} s<td>{min(one.seconds):.2f} to "
        f"{max(one.seconds):.2f} s<td>{len(one.seconds)}<td>{bench.of_first(one):.2f}</tr>"
        for one in bench.series
    ]
    return (
        "<h2>To the first token, from the moment when no engine lived</h2><table><tr><th>start<th>median"
        f"<th>spread<th>runs<th>part of the first</tr>{''.join(rows)}</table>"
        f"<p>Page cache {escape(bench.page_cache)}. "
        f"Every answer the same: {'yes' if bench.same_answer else 'no'}.</p>"
    )


def _starts(runs: Sequence[Run]) -> str:
    head = "<tr><th>start<th>outcome<th>tensors<th>mapped<th>seconds<th>memory (PSS)</tr>"
    rows = []
    for run in runs:
        outcome = run.evidence.outcome + (f": {run.evidence.reason}" if run.evidence.reason else "")
        seconds = "<br>".join(escape(f"{name} {value:.2f}") for name, value in run.seconds.items())
        memory = "<br>".join(escape(f"{name} {mebibytes(value)}") for name, value in run.memory_bytes.items())
        rows.append(
            f"<tr><td>{name_of(run)}<td>{escape(outcome)}<td>{run.evidence.tensors or '-'}<td>"
            f"{mebibytes(run.evidence.mapped_bytes)}<td>{seconds}<td>{memory}</tr>"
        )
    return f"<table>{head}{''.join(rows)}</table>"
