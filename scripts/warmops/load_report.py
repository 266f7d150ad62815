"""The report of a load as data, in the form of load.schema.json.

In: judged runs. Out: what `report.json` holds, and medians over the runs. It refuses to judge anything:
findings arrive with the runs.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from warmops.drill_plan import Finding
from warmops.load_judge import WINDOWS, Judged
from warmops.load_plan import PROMPTS, EventSeen, LoadShape, Request

SCHEMA_VERSION = 1
SCHEMA_FILE = Path(__file__).with_name("load.schema.json")


@dataclass(frozen=True, kw_only=True)
class LoadReport:
    """All that one `load` found. `started_at` is an RFC 3339 time in UTC."""

    project: str
    environment: str
    model: str
    identity: str
    started_at: str
    host: Mapping[str, str | int]
    event: str
    shape: LoadShape
    runs: tuple[Judged, ...]
    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        every = (*self.findings, *(finding for judged in self.runs for finding in judged.findings))
        return bool(self.runs) and all(finding.ok for finding in every)

    @property
    def latency_from(self) -> str:
        """With a fixed rate a late request is late for its user, whyever it was sent late."""
        return "send time" if self.shape.rate is None else "intended send time"


@dataclass(frozen=True, kw_only=True)
class Middle:
    """One figure over the runs of one event."""

    median: float
    least: float
    most: float


def middles(runs: Sequence[Judged]) -> dict[str, Middle]:
    """Median and spread of each figure that every one of the runs has; durations in seconds."""
    each = [_figures(judged) for judged in runs]
    names = [name for name in (each[0] if each else {}) if all(name in figures for figures in each)]
    found = {name: [figures[name] for figures in each] for name in names}
    return {
        name: Middle(median=statistics.median(values), least=min(values), most=max(values))
        for name, values in found.items()
    }


def to_json(report: LoadReport) -> dict[str, Any]:
    """The report in the form of load.schema.json."""
    events = dict.fromkeys(judged.run.event for judged in report.runs)
    return {
        "schema": SCHEMA_VERSION,
        "kind": "load",
        "project": report.project,
        "environment": report.environment,
        "model": report.model,
        "identity": report.identity,
        "started_at": report.started_at,
        "host": dict(report.host),
        "event": report.event,
        "control": next((event for event in events if event != report.event), None),
        "shape": {**asdict(report.shape), "latency_from": report.latency_from, "prompts": list(PROMPTS)},
        "passed": report.passed,
        "findings": [asdict(finding) for finding in report.findings],
        "summary": {
            event: {
                name: {key: round(value, 4) for key, value in asdict(middle).items()}
                for name, middle in middles([j for j in report.runs if j.run.event == event]).items()
            }
            for event in events
        },
        "runs": [_run(judged) for judged in report.runs],
    }


def _figures(judged: Judged) -> dict[str, float]:
    figures: dict[str, float] = {name: float(count) for name, count in judged.counts.items()}
    for window in WINDOWS:
        spread = judged.first_token[window]
        if spread is not None:
            figures |= {f"first token {window}, {p}": getattr(spread, p) for p in ("p50", "p99", "max")}
    if judged.added is not None:
        figures |= {f"added, {p}": value for p, value in judged.added.items()}
    if judged.takeover_seconds is not None:
        figures["next first token"] = judged.takeover_seconds
    return figures


def _run(judged: Judged) -> dict[str, Any]:
    run = judged.run
    return {
        "event": run.event,
        "repetition": run.repetition,
        "passed": judged.passed,
        "seconds": round(run.ended_at - run.begun_at, 4),
        "counts": dict(judged.counts),
        "unsent": run.unsent,
        "phases": _phases(run.seen, run.begun_at),
        "error": run.seen.error if run.seen is not None else None,
        "first_token": {window: _rounded(judged.first_token[window]) for window in WINDOWS},
        "whole_answer": {window: _rounded(judged.whole_answer[window]) for window in WINDOWS},
        "added": {name: round(value, 4) for name, value in judged.added.items()} if judged.added else None,
        "next_first_token_seconds": _short(judged.takeover_seconds),
        "answers": [
            {"prompt": prompt, "variants": [{"text": v.text, **v.counts} for v in variants]}
            for prompt, variants in judged.answers.items()
        ],
        "findings": [asdict(finding) for finding in judged.findings],
        "requests": [_request(request, run.begun_at) for request in run.requests],
    }


def _phases(seen: EventSeen | None, origin: float) -> list[dict[str, Any]]:
    """Seconds after the beginning of the load; the event as a whole comes first."""
    if seen is None:
        return []
    whole = ("event", seen.begun_at, seen.ended_at)
    parts = [whole, *((band.name, band.begin, band.end) for band in seen.bands)]
    return [
        {"name": name, "begin": round(begin - origin, 4), "seconds": round(end - begin, 4)}
        for name, begin, end in parts
    ]


def _request(request: Request, origin: float) -> dict[str, Any]:
    return {
        "client": request.client,
        "prompt": PROMPTS.index(request.prompt),
        "streaming": request.streaming,
        "intended": round(request.intended_at - origin, 4),
        "sent": round(request.sent_at - origin, 4),
        "first_token": _after(request.first_token_at, origin),
        "ended": round(request.ended_at - origin, 4),
        "tokens": request.tokens,
        "outcome": str(request.outcome),
        "status": request.status,
        "code": request.code,
        "message": request.message,
        "digest": request.digest,
    }


def _after(moment: float | None, origin: float) -> float | None:
    return _short(None if moment is None else moment - origin)


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _rounded(spread: object) -> dict[str, float] | None:
    return None if spread is None else {name: round(v, 4) for name, v in vars(spread).items()}
