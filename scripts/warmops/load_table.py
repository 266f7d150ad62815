"""The report of a load for a person at the terminal.

In: a `LoadReport`. Out: a table and the findings that failed, on stderr: stdout is for `--json`.
"""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from warmops.console import rich_console
from warmops.load_judge import WINDOWS, Judged, Spread
from warmops.load_plan import Outcome
from warmops.load_report import LoadReport, middles


def show(report: LoadReport, folder: Path) -> None:
    """What clients felt in each run, medians over the runs, and each finding that failed."""
    console = rich_console()
    counts = Table(title=f"{report.model} in {report.environment}: requests")
    for name in ("run", "sent", *map(str, Outcome), "verdict"):
        counts.add_column(name)
    times = Table(title="seconds to first token: p50 / p99 / max")
    for name in ("run", *WINDOWS):
        times.add_column(name)
    for judged in report.runs:
        numbers = (str(judged.counts[name]) for name in ("sent", *map(str, Outcome)))
        counts.add_row(_name(judged), *numbers, "passed" if judged.passed else "FAILED")
        times.add_row(_name(judged), *(_three(judged.first_token[window]) for window in WINDOWS))
    console.print(counts)
    console.print(times)
    told = [("all runs", finding) for finding in report.findings]
    told += [(_name(judged), finding) for judged in report.runs for finding in judged.findings]
    for name, finding in told:
        if not finding.ok:
            text = f"{name}: {finding.name}: expected {finding.expected}, found {finding.found}"
            console.print(text, style="red", markup=False)
    for finding in report.findings:
        if finding.ok:
            console.print(f"{finding.name}: {finding.found}; expected {finding.expected}", markup=False)
    for event in dict.fromkeys(judged.run.event for judged in report.runs):
        found = middles([judged for judged in report.runs if judged.run.event == event])
        words = [f"{name} {found[name].median:.2f} s" for name in _TOLD if name in found]
        console.print(f"{event}, median: {', '.join(words) or 'nothing was measured'}", markup=False)
    console.print(f"report: {folder / 'report.html'}", markup=False, soft_wrap=True)


_TOLD = ("added, p50", "added, p99", "added, max", "next first token")


def _three(spread: Spread | None) -> str:
    return "-" if spread is None else f"{spread.p50:.2f} / {spread.p99:.2f} / {spread.max:.2f}"


def _name(judged: Judged) -> str:
    return f"{judged.run.event} #{judged.run.repetition}"
