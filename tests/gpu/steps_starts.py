"""Steps about the seconds of a start: what the nursery said, and the comparison with stock.

In: a lane whose stack is up. Out: facts with `ok`, as `steps`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from gpu.lane import Lane, forked, nursery_marks, warm, write_json
from gpu.steps import Facts, Step, _read, up_with
from warmops.evidence import Mark

_LEARN_SECONDS = 90.0
_LIST = "/cache/warmstack/imports.json"
# Leaves the seconds that bringing results back needs.
_END_MARGIN_SECONDS = 30.0


def nursery(lane: Lane) -> Facts:
    """Until the nursery has learned from the engine that serves, or is given up: what it said, all of it."""
    deadline = time.monotonic() + _LEARN_SECONDS
    marks = nursery_marks(lane)
    while not _settled(marks) and time.monotonic() < deadline:
        time.sleep(1.0)
        marks = nursery_marks(lane)
    told = [{"event": mark.event, "t": mark.t, **mark.fields} for mark in marks]
    last = told[-1] if told else {}
    return {
        "ok": last.get("state") == "learned" or forked(marks),
        "sentence": next((one["sentence"] for one in reversed(told) if one.get("sentence")), None),
        "forked": forked(marks),
        "said": told,
        "list": _list_of_imports(lane),
        "settled": _settled(marks),
    }


def _settled(marks: list[Mark]) -> bool:
    """It learned after the last engine began, or is given up."""
    served = max((index for index, mark in enumerate(marks) if mark.event == "serve"), default=len(marks))
    states = [mark.fields.get("state") for mark in marks if mark.event == "nursery"]
    learned = any(mark.fields.get("state") == "learned" for mark in marks[served:])
    return learned or not states or states[-1] == "off"


def _list_of_imports(lane: Lane) -> Facts:
    """How many modules are imported ahead, and those that must not be."""
    engine = lane.engine()
    if engine is None:
        return {}
    told = lane.docker_project.docker.execute(engine.id, "cat", _LIST, check=False)
    kept = _read(told.stdout) if told.ok else {}
    return {"learned": len(kept.get("learned", ())), "unfit": kept.get("unfit", [])}


def bench(kinds: str, repeat: int, *, beside: bool = True) -> Step:
    """`warm bench`, the others beside this engine or in turn with it; each whole round leaves a report, so a
    late one counts.
    """

    def run(lane: Lane) -> Facts:
        begun, loads = time.time(), [os.getloadavg()[0]]
        options = ("--kinds", kinds, "--repeat", str(repeat), "--no-first", "--json")
        options += ("--beside",) if beside else ()
        code, told, seconds = warm(lane, "bench", *options, log="bench", seconds=seconds_left(900.0))
        report = _read(told) or newest_report(lane, since=begun)
        write_json(lane.folder / "bench.report.json", report)
        keep_picture(lane, "starts.svg", "bench.svg", since=begun)
        loads.append(os.getloadavg()[0])
        compared = report.get("bench") or {}
        return {
            "ok": code == 0 and bool(compared),
            "exit": code,
            "took": round(seconds, 1),
            "load_average": loads,
            "bench": compared,
            "not_as_expected": [
                {**finding, "name": f"{one['kind']} {one['repetition']}: {finding['name']}"}
                for one in report.get("runs", ())
                for finding in one.get("findings", ())
                if not finding["ok"]
            ],
        }

    return run


def levers(*settings: str, proven_by: Mapping[str, str] = MappingProxyType({})) -> Step:
    """The same stack with these settings; one that a step before showed not to work is left out.

    A start that fails is not tried again and again: it would fail the same way.
    """

    def run(lane: Lane) -> Facts:
        used = [one for one in settings if one not in proven_by or went_well(lane, proven_by[one])]
        facts = up_with(*used, "engine.max_restarts=1")(lane)
        return {**facts, "levers": used}

    return run


def went_well(lane: Lane, step: str) -> bool:
    path = lane.folder / f"{step}.json"
    return path.exists() and bool(json.loads(path.read_text(encoding="utf-8"))["ok"])


def seconds_left(most: float) -> float:
    """Until the session's end (GPU_SESSION_END, unix seconds), and not more than `most`."""
    end = os.environ.get("GPU_SESSION_END")
    return most if end is None else max(1.0, min(most, float(end) - time.time() - _END_MARGIN_SECONDS))


def newest_report(lane: Lane, *, since: float, choose: Callable[[Facts], bool] = bool) -> Facts:
    """The last report that a command of this project wrote; empty when there is none."""
    for path in _newest(lane, "report.json", since):
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            continue
        if choose(found):
            return dict(found)
    return {}


def keep_picture(lane: Lane, name: str, kept: str, *, since: float) -> None:
    for path in _newest(lane, name, since)[:1]:
        (lane.folder / kept).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")


def _newest(lane: Lane, name: str, since: float) -> list[Path]:
    found = [path for path in lane.docker_project.reports.glob(f"*/{name}") if path.stat().st_mtime >= since]
    return sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)
