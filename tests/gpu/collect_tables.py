"""Tables of the steps that compare starts and that put a load on the gateway.

In: facts of steps. Out: lines of Markdown, none for a step that was not run. Refuses to know: files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Facts = Mapping[str, Any]
_BENCH = "bench"


def bench_tables(steps: Sequence[Facts]) -> list[str]:
    """Stock against this stack, interleaved: each start, median, and the ratio to the first kind."""
    lines: list[str] = []
    for facts in steps:
        series = (facts.get(_BENCH) or {}).get("series") or ()
        if not series:
            continue
        beside = ", ".join(facts.get("other_lanes") or ()) or "nothing"
        lines += ["", f"## {facts['lane']}: seconds to the first token", ""]
        lines += [f"Interleaved; page cache {facts[_BENCH]['page_cache']}. Beside it ran {beside}.", ""]
        lines += ["| start | median | of the first | each |", "|---|---:|---:|---|"]
        for one in series:
            each = ", ".join(f"{seconds:.1f}" for seconds in one["seconds"])
            middle = f"{one['median_seconds']:.1f} | {one['of_first']:.2f}"
            lines.append(f"| {one['title']} | {middle} | {each} |")
    return lines


def load_tables(steps: Sequence[Facts]) -> list[str]:
    """What clients felt of an event: requests, and seconds to the first token before, during and after."""
    loads = [facts for facts in steps if facts.get("event") and facts.get("counts")]
    if not loads:
        return []
    lines = ["", "## Under load", ""]
    lines += ["| event | sent | answered | failed | cut | error events | next first token, s | beside |"]
    lines += ["|---|---:|---:|---:|---:|---:|---:|---|"]
    for facts in loads:
        counts = facts["counts"]
        cells = [counts.get(name, 0) for name in ("sent", "answered", "failed", "cut", "error event")]
        beside = ", ".join(facts.get("other_lanes") or ())
        shown = " | ".join(str(cell) for cell in cells)
        lines.append(
            f"| {facts['event']} | {shown} | {_number(facts['next_first_token_seconds'])} | {beside} |"
        )
    lines += ["", "| event | window | requests | p50, s | p99, s | max, s |", "|---|---|---:|---:|---:|---:|"]
    for facts in loads:
        for window, spread in (facts.get("first_token") or {}).items():
            if spread:
                figures = " | ".join(_number(spread[name]) for name in ("p50", "p99", "max"))
                lines.append(f"| {facts['event']} | {window} | {spread['count']:.0f} | {figures} |")
    lines += ["", "| event | phase | begins after, s | takes, s |", "|---|---|---:|---:|"]
    for facts in loads:
        for phase in facts.get("phases") or ():
            lines.append(
                f"| {facts['event']} | {phase['name']} | {phase['begin']:.1f} | {phase['seconds']:.1f} |"
            )
    return lines


def nursery_lines(steps: Sequence[Facts]) -> list[str]:
    """Whether engines came out of a nursery, and what it said when it refused."""
    told = [facts for facts in steps if facts["step"] == "nursery" and "said" in facts]
    if not told:
        return []
    lines = ["", "## Nursery", "", "| lane | engine forked | learned | left out | ready after, s | says |"]
    lines += ["|---|---|---:|---|---:|---|"]
    for facts in told:
        ready = [one.get("seconds") for one in facts["said"] if one.get("state") == "ready"]
        kept = facts.get("list") or {}
        lines.append(
            f"| {facts['lane']} | {'yes' if facts['forked'] else 'no'} | {kept.get('learned', '')} "
            f"| {', '.join(kept.get('unfit') or ())} | {_number(ready[0] if ready else None)} "
            f"| {facts.get('sentence') or ''} |"
        )
    return lines


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
