"""`drills`: carry out rehearsed failures on a running stack, judge each, and write the report.

In: a running project and names of drills. Out: a table, report.json, report.html. Exit 1 when any outcome
differs from what its drill declares.
"""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from warmops.console import failure, heading, rich_console
from warmops.drill_plan import DRILLS, Drill
from warmops.drill_steps import run_drill
from warmops.project import Project, Remembered
from warmops.project_lock import alone
from warmops.report import Bench, Report, Run, medians, to_json
from warmops.report_files import as_text, host_facts, write_files
from warmops.report_html import render_html
from warmops.restart import require_weight_cache
from warmops.target import add_target, find_target
from warmops.units import mebibytes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    parser.add_argument("--drill", metavar="NAME", help=f"one of {', '.join(DRILLS)}; default: all")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="repetitions of each drill")


def run(arguments: argparse.Namespace) -> int:
    drills = chosen(arguments.drill)
    if arguments.repeat < 1:
        raise failure(f"repeat: {arguments.repeat} is not a count", "give 1 or more", exit_code=2)
    project, settings = find_target(arguments)
    if project.host_cache is not None:
        hint = f"make restart PROJECT={project.name} recycles the engine and proves what happened"
        raise failure(
            "drills kill by id inside the weight-cache container, and there is none", hint, exit_code=2
        )
    with alone(project, "drill"):
        return _drill(project, settings, drills, arguments)


def _drill(
    project: Project, settings: Remembered, drills: tuple[Drill, ...], arguments: argparse.Namespace
) -> int:
    require_weight_cache(project)
    started_at = utc_now()
    runs: list[Run] = []
    for repetition in range(1, arguments.repeat + 1):
        for drill in drills:
            heading(f"drill {drill.name} ({repetition} of {arguments.repeat}): {drill.purpose}")
            runs.append(run_drill(drill, project, settings, repetition=repetition))
    report = build_report(project, settings, runs, started_at=started_at)
    folder = write_report(report, project.reports)
    if arguments.json:
        print(as_text(to_json(report)))
    show(report, folder)
    return 0 if report.passed else 1


def chosen(name: str | None) -> tuple[Drill, ...]:
    """The drill of that name, or all. Raises UserError (exit code 2) for an unknown name."""
    if not name:
        return tuple(DRILLS.values())
    if name not in DRILLS:
        raise failure(f"there is no drill {name}", f"one of {', '.join(DRILLS)}", exit_code=2)
    return (DRILLS[name],)


def build_report(
    project: Project,
    settings: Remembered,
    runs: Sequence[Run],
    *,
    started_at: str,
    bench: Bench | None = None,
) -> Report:
    return Report(
        project=project.name,
        environment=settings.environment,
        model=settings.model,
        identity=settings.identity,
        started_at=started_at,
        host=host_facts(),
        runs=tuple(runs),
        bench=bench,
    )


def write_report(report: Report, reports: Path) -> Path:
    """Write both files into a folder named by the time; gives that folder."""
    return write_files(reports, report.started_at, to_json(report), render_html(report))


def utc_now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def show(report: Report, folder: Path) -> None:
    """The report for a person, on stderr: stdout is for `--json`."""
    console = rich_console()
    table = Table(title=f"{report.model} in {report.environment}")
    for name in ("start", "outcome", "mapped", "ready", "first token", "verdict"):
        table.add_column(name)
    for run in report.runs:
        table.add_row(*_row(run))
    console.print(table)
    for run in report.runs:
        for finding in run.findings:
            if not finding.ok:
                text = f"{run.kind} #{run.repetition}: {finding.name}: expected {finding.expected}, "
                console.print(text + f"found {finding.found}", style="red", markup=False)
    for kind in dict.fromkeys(run.kind for run in report.runs):
        found = medians([run for run in report.runs if run.kind == kind])
        middle = ", ".join(f"{name} {value:.2f} s" for name, value in found.items())
        console.print(f"{kind}, median: {middle or 'nothing was measured'}", markup=False, highlight=False)
    if report.bench is not None:
        for one in report.bench.series:
            spread = f"{min(one.seconds):.2f} to {max(one.seconds):.2f} s"
            words = (
                f"{one.title}: {one.median:.2f} s ({spread}), {report.bench.of_first(one):.2f} of the first"
            )
            console.print(words, markup=False, highlight=False, soft_wrap=True)
    console.print(f"report: {folder / 'report.html'}", markup=False, soft_wrap=True)


def _row(run: Run) -> tuple[str, ...]:
    evidence = run.evidence
    durations = (run.seconds.get("ready"), run.seconds.get("first token"))
    return (
        f"{run.kind} #{run.repetition}",
        evidence.outcome + (f" ({evidence.reason})" if evidence.reason else ""),
        f"{evidence.tensors or '-'} tensors, {mebibytes(evidence.mapped_bytes)}",
        *("-" if value is None else f"{value:.2f} s" for value in durations),
        "passed" if run.passed else "FAILED",
    )
