"""Steps under load: a roll, a restart, a kill with a standby; what clients felt, and memory meanwhile.

In: a lane whose stack is up. Out: facts with `ok`, as `steps`; the load's report without its single requests,
and its picture.
"""

from __future__ import annotations

import re
import threading
import time
from typing import Any

from gpu.lane import Lane, compare_with_plan, snapshot, warm, write_json
from gpu.steps import Facts, Step, _read
from gpu.steps_starts import keep_picture, newest_report, seconds_left
from warmops.changes import ENGINE, SURGE

_LOOK_SECONDS = 2.0
_PICTURE = re.compile(r"<svg .*?</svg>", re.DOTALL)
# Streams of a second or so: some are in flight whenever the event comes.
_SHAPE = ("--clients", "8", "--tokens", "160")


def under_load(event: str, *, seconds: int, limit: float) -> Step:
    """`warm load` with an event; without the control run, whose second engine needs Docker's network."""

    def run(lane: Lane) -> Facts:
        begun = time.time()
        shape = _SHAPE if lane.on_gpu else ("--clients", "8", "--tokens", "24")
        options = ("--event", event, "--seconds", str(seconds), *shape, "--no-control", "--json")
        with Watch(lane) as watch:
            code, told, took = warm(lane, "load", *options, log=f"load-{event}", seconds=seconds_left(limit))
        report = _read(told) or newest_report(lane, since=begun)
        write_json(lane.folder / f"load-{event}.report.json", without_requests(report))
        keep_picture(lane, "report.html", f"load-{event}.html", since=begun)
        keep_svg(lane, event)
        runs = report.get("runs") or [{}]
        findings = [*report.get("findings", ()), *(f for one in runs for f in one.get("findings", ()))]
        rows = watch.rows()
        return {
            "ok": code == 0 and all(row["ok"] for row in rows),
            "exit": code,
            "took": round(took, 1),
            "event": event,
            "counts": runs[0].get("counts"),
            "first_token": runs[0].get("first_token"),
            "added": runs[0].get("added"),
            "next_first_token_seconds": runs[0].get("next_first_token_seconds"),
            "phases": runs[0].get("phases"),
            "error": runs[0].get("error"),
            "not_as_expected": [finding for finding in findings if not finding["ok"]],
            "rows": rows,
            "seen": watch.largest,
        }

    return run


class Watch:
    """Looks at the GPU's memory every two seconds and keeps the look at which two engines held the most."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="memory", daemon=True)
        self.largest: dict[str, Any] = {}

    def __enter__(self) -> Watch:
        if self._lane.on_gpu:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(30)

    def rows(self) -> list[dict[str, Any]]:
        """Against the plan; none when no two engines were seen at once."""
        if not self.largest:
            return []
        return compare_with_plan(self._lane, self.largest, self._lane.plan(), surge=SURGE)

    def _look(self) -> None:
        most = 0
        while not self._over.wait(_LOOK_SECONDS):
            try:
                seen = snapshot(self._lane)
            except Exception:  # containers come and go meanwhile
                continue
            services = seen["services"]
            held = sum(services.get(ENGINE, {}).values()) + sum(services.get(SURGE, {}).values())
            if services.get(ENGINE) and services.get(SURGE) and held > most:
                most, self.largest = held, seen


def pair_memory(lane: Lane) -> Facts:
    """Weight cache, the engine and its standby against the plan."""
    if not lane.on_gpu:
        return {"ok": True, "skipped": "no GPU"}
    seen, plan = snapshot(lane), lane.plan()
    rows = compare_with_plan(lane, seen, plan, surge=SURGE)
    return {
        "ok": bool(rows) and all(row["ok"] for row in rows),
        "rows": rows,
        "plan": {part.key: part.bytes for part in plan.budget.parts},
        "seen": seen,
    }


def without_requests(report: Facts) -> Facts:
    """Thousands of single requests are in the picture; a report for people has none of them."""
    runs = [
        {name: value for name, value in one.items() if name != "requests"} for one in report.get("runs", ())
    ]
    return {**report, "runs": runs} if report else {}


def keep_svg(lane: Lane, event: str) -> None:
    page = lane.folder / f"load-{event}.html"
    found = _PICTURE.search(page.read_text(encoding="utf-8")) if page.exists() else None
    if found is not None:
        (lane.folder / f"load-{event}.svg").write_text(found[0] + "\n", encoding="utf-8")
    page.unlink(missing_ok=True)
