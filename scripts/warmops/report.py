"""The report of a drill or a bench as data, in the form of report.schema.json.

In: what was measured and judged. Out: what `report.json` holds.
It refuses to judge anything: `passed` arrives with the findings.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from warmops.drill_plan import Finding
from warmops.evidence import StartEvidence
from warmops.phases import Phase

SCHEMA_VERSION = 2
SCHEMA_FILE = Path(__file__).with_name("report.schema.json")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One engine start. `seconds` by what they measure, `memory_bytes` (PSS) by service."""

    kind: str
    repetition: int
    evidence: StartEvidence
    findings: tuple[Finding, ...]
    phases: tuple[Phase, ...]
    seconds: Mapping[str, float]
    memory_bytes: Mapping[str, int | None] = field(default_factory=dict)
    answer: str | None = None

    @property
    def passed(self) -> bool:
        return all(finding.ok for finding in self.findings)


@dataclass(frozen=True, kw_only=True)
class Series:
    """Starts of one kind: seconds from the moment when no engine lived to the first token."""

    kind: str
    title: str
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A comparison, interleaved in one run. The first series is what the others are measured by."""

    page_cache: str
    series: tuple[Series, ...]
    same_answer: bool

    def of_first(self, series: Series) -> float:
        """Its median as a part of the first one's: below 1 it is faster."""
        return series.median / self.series[0].median


@dataclass(frozen=True, kw_only=True)
class Report:
    """All that one `drills` or `bench` found. `started_at` is an RFC 3339 time in UTC."""

    project: str
    environment: str
    model: str
    identity: str
    started_at: str
    host: Mapping[str, str | int]
    runs: tuple[Run, ...]
    bench: Bench | None = None

    @property
    def passed(self) -> bool:
        return bool(self.runs) and all(run.passed for run in self.runs)


def to_json(report: Report) -> dict[str, Any]:
    """The report in the form of report.schema.json."""
    return {
        "schema": SCHEMA_VERSION,
        "project": report.project,
        "environment": report.environment,
        "model": report.model,
        "identity": report.identity,
        "started_at": report.started_at,
        "host": dict(report.host),
        "passed": report.passed,
        "runs": [_run(run) for run in report.runs],
        "bench": _bench(report.bench) if report.bench is not None else None,
    }


def medians(runs: Sequence[Run]) -> dict[str, float]:
    """Median of each measured duration over the runs that have it, in seconds."""
    names = dict.fromkeys(name for run in runs for name in run.seconds)
    return {name: statistics.median(r.seconds[name] for r in runs if name in r.seconds) for name in names}


def _run(run: Run) -> dict[str, Any]:
    evidence = run.evidence
    return {
        "kind": run.kind,
        "repetition": run.repetition,
        "passed": run.passed,
        "outcome": evidence.outcome,
        "reason": evidence.reason,
        "after_miss": evidence.after_miss,
        "sentence": evidence.sentence,
        "tensors": evidence.tensors,
        "mapped_bytes": evidence.mapped_bytes,
        "mapped_seconds": evidence.mapped_seconds,
        "seconds": {name: round(value, 4) for name, value in run.seconds.items()},
        "phases": [
            {**asdict(p), "begin": round(p.begin, 4), "seconds": round(p.seconds, 4)} for p in run.phases
        ],
        "memory_bytes": dict(run.memory_bytes),
        "answer": run.answer,
        "findings": [asdict(finding) for finding in run.findings],
    }


def _bench(bench: Bench) -> dict[str, Any]:
    return {
        "page_cache": bench.page_cache,
        "same_answer": bench.same_answer,
        "series": [
            {
                "kind": one.kind,
                "title": one.title,
                "seconds": [round(value, 4) for value in one.seconds],
                "median_seconds": round(one.median, 4),
                "fastest_seconds": round(min(one.seconds), 4),
                "slowest_seconds": round(max(one.seconds), 4),
                "of_first": round(bench.of_first(one), 4),
            }
            for one in bench.series
        ],
    }
