"""The report of a load as one HTML file that stands alone.

In: a `LoadReport`. Out: a page with the verdict, a picture of each run, what clients felt, and every finding.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from warmops.load_judge import WINDOWS, Judged, Spread
from warmops.load_picture import LEGEND, render_svg
from warmops.load_plan import EVENTS, Outcome
from warmops.load_report import LoadReport, Middle, middles
from warmops.report_page import facts_table, findings_table, page, table
from warmops.units import counted


def render_html(report: LoadReport) -> str:
    """The whole page as text."""
    shape = report.shape
    pace = "each as soon as it has its answer" if shape.rate is None else f"{shape.rate:g} requests a second"
    facts = {
        "event": f"{report.event}: {EVENTS[report.event].purpose}",
        "load": f"{shape.clients} clients, {shape.streaming} of them with streams, {pace}",
        "latency": f"from the {report.latency_from}",
        "model": report.model,
        "environment": report.environment,
        "project": report.project,
        "identity": report.identity,
        "started": report.started_at,
        **report.host,
    }
    findings = [("all runs", finding) for finding in report.findings]
    findings += [(_name(judged), finding) for judged in report.runs for finding in judged.findings]
    parts = [
        f"<p>{_verdict(report)}</p>{facts_table(facts)}",
        f"<h2>Seconds to first token</h2>{_legend()}",
        *(f"<h3>{_name(judged)}</h3>{render_svg(judged)}{_felt(judged)}" for judged in report.runs),
        f"<h2>Requests</h2>{_counts(report.runs)}",
        _middles(report),
        _phases(report.runs),
        _differing(report.runs),
        f"<h2>Expectations</h2>{findings_table('run', findings)}",
    ]
    return page(report.model, parts)


def _verdict(report: LoadReport) -> str:
    if report.passed:
        return f"<span class=ok>Passed:</span> {counted(len(report.runs), 'run')}, each as declared."
    return "<span class=bad>Failed:</span> something differs from what was declared; see Expectations."


def _legend() -> str:
    keys = (
        f'<span class=key><span style="color:{colour}">{sign}</span> {escape(words)}</span>'
        for sign, colour, words in LEGEND
    )
    return f"<p>{''.join(keys)}</p>"


def _felt(judged: Judged) -> str:
    """Both kinds of clients, before, during and after the event; then what the event added."""
    rows = [
        (window, *_cells(judged.first_token[window]), *_cells(judged.whole_answer[window]))
        for window in WINDOWS
        if judged.first_token[window] or judged.whole_answer[window]
    ]
    if judged.added is not None:
        rows.append(("added", "", *(f"{value:+.2f}" for value in judged.added.values()), "", "", "", ""))
    head = ("", "first tokens", "p50 s", "p99 s", "max s", "whole answers", "p50 s", "p99 s", "max s")
    return table(head, rows)


def _cells(spread: Spread | None) -> tuple[str, ...]:
    if spread is None:
        return ("-", "-", "-", "-")
    return (str(spread.count), *(f"{value:.2f}" for value in (spread.p50, spread.p99, spread.max)))


def _counts(runs: Sequence[Judged]) -> str:
    head = ("run", "sent", *map(str, Outcome), "due and unsent", "next first token")
    return table(
        head,
        (
            (
                _name(judged),
                *(str(judged.counts[name]) for name in ("sent", *map(str, Outcome))),
                str(judged.run.unsent),
                "-" if judged.takeover_seconds is None else f"{judged.takeover_seconds:.2f} s",
            )
            for judged in runs
        ),
    )


def _middles(report: LoadReport) -> str:
    """Where an event ran more than once: each figure's median, least and most."""
    events = dict.fromkeys(judged.run.event for judged in report.runs)
    each = {event: [judged for judged in report.runs if judged.run.event == event] for event in events}
    if all(len(runs) < 2 for runs in each.values()):
        return ""
    found = {event: middles(runs) for event, runs in each.items()}
    names = dict.fromkeys(name for figures in found.values() for name in figures)
    rows = ((escape(name), *(_middle(found[event].get(name)) for event in events)) for name in names)
    return f"<h2>Median of the runs (least to most)</h2>{table(('', *events), rows)}"


def _middle(figure: Middle | None) -> str:
    return "-" if figure is None else f"{figure.median:.2f} ({figure.least:.2f} to {figure.most:.2f})"


def _phases(runs: Sequence[Judged]) -> str:
    rows = [
        (
            _name(judged),
            escape(band.name),
            f"{band.begin - judged.run.begun_at:.1f} s",
            f"{band.end - band.begin:.2f} s",
        )
        for judged in runs
        if judged.run.seen is not None
        for band in judged.run.seen.bands
    ]
    return f"<h2>Phases</h2>{table(('run', 'phase', 'began at', 'took'), rows)}" if rows else ""


def _differing(runs: Sequence[Judged]) -> str:
    rows = [
        (_name(judged), escape(prompt), escape(variant.text), *(str(variant.counts[w]) for w in WINDOWS))
        for judged in runs
        for prompt, variants in judged.answers.items()
        if len(variants) > 1
        for variant in variants
    ]
    if not rows:
        return ""
    return f"<h2>Answers that differ</h2>{table(('run', 'prompt', 'answer', *WINDOWS), rows)}"


def _name(judged: Judged) -> str:
    return escape(f"{judged.run.event} #{judged.run.repetition}")
