"""Where the seconds of the last engine start went, for /metrics.

In: marks and log lines as they come. Out: phases of the last start until it was ready.
Refuses to know: what Docker and the client saw; `make restart` measures from outside and adds them.
The table of moments is phases.json beside this module, which the host reads too.
"""

import json
import re
import threading
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

UNATTRIBUTED = "unattributed"
_HOST = "host"
_READY = "ready"


def read_table() -> tuple[dict[str, Any], ...]:
    """The moments that are seen in here, in order; `ready` is measured from outside and in here."""
    rows = json.loads(Path(__file__).with_name("phases.json").read_text())
    return tuple(row for row in rows if row["source"] != _HOST or row["moment"] == _READY)


@dataclass
class Ledger:
    """Fed by the loop and by the thread that reads the engine's output."""

    table: tuple[dict[str, Any], ...] = field(default_factory=read_table)
    starts: int = 0
    crashes: int = 0
    _moments: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def mark(self, event: str, now: float) -> None:
        """One of our own marks; `engine-start` begins a new page."""
        with self._lock:
            if event == "engine-start":
                self._moments = {}
                self.starts += 1
            elif event == "engine-exit":
                self.crashes += 1
            if any(row["moment"] == event for row in self.table):
                self._moments.setdefault(event, now)

    def line(self, text: str, now: float) -> None:
        """A line of the engine. What comes after it is ready belongs to no start."""
        with self._lock:
            if _READY in self._moments:
                return
            for row in self.table:
                wanted = row.get("last") or row["moment"] not in self._moments
                if wanted and "pattern" in row and re.search(row["pattern"], text):
                    self._moments[row["moment"]] = now

    @property
    def ready(self) -> bool:
        return _READY in self._moments

    def phases(self) -> list[tuple[str, float]]:
        """Name and seconds of each phase so far, in order. Where a needed moment is missing: unattributed."""
        with self._lock:
            moments = dict(self._moments)
        known = [at for at, row in enumerate(self.table) if row["moment"] in moments]
        found = []
        end_before = moments[self.table[known[0]]["moment"]] if known else 0.0
        for earlier, later in pairwise(known):
            end = max(end_before, moments[self.table[later]["moment"]])
            missing = any(row.get("needed") for row in self.table[earlier + 1 : later])
            found.append((UNATTRIBUTED if missing else self.table[later]["phase"], end - end_before))
            end_before = end
        return found


def metrics_of(ledger: Ledger, *, nursery: str) -> str:
    """Prometheus text format, version 0.0.4."""
    prefix = "warmstack_engine"
    phases = ledger.phases()
    lines = [
        f"# HELP {prefix}_start_phase_seconds Where the last start's seconds went, until ready.",
        f"# TYPE {prefix}_start_phase_seconds gauge",
    ]
    for phase, seconds in _summed(phases):
        lines.append(f'{prefix}_start_phase_seconds{{phase="{phase}"}} {seconds:.3f}')
    lines += [
        f"# HELP {prefix}_nursery 1 for the state that the nursery is in.",
        f"# TYPE {prefix}_nursery gauge",
        f'{prefix}_nursery{{state="{nursery}"}} 1',
    ]
    total = f"{sum(seconds for _, seconds in phases):.3f}"
    values = (
        ("start_seconds", "gauge", "The last start so far, or until it was ready.", total),
        ("ready", "gauge", "1 once the last start is ready.", int(ledger.ready)),
        ("starts_total", "counter", "Starts in this container.", ledger.starts),
        ("crashes_total", "counter", "Ends that nobody asked for.", ledger.crashes),
    )
    for name, kind, text, value in values:
        lines += [
            f"# HELP {prefix}_{name} {text}",
            f"# TYPE {prefix}_{name} {kind}",
            f"{prefix}_{name} {value}",
        ]
    return "\n".join(lines) + "\n"


def _summed(phases: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """Each name once: two gaps are one figure."""
    sums: dict[str, float] = {}
    for name, seconds in phases:
        sums[name] = sums.get(name, 0.0) + seconds
    return list(sums.items())
