"""`restart`: recycle the engine alone, and prove what happened.

In: a running project. Out: hit or miss with reason, seconds to ready and first token, bytes mapped, whether
the greedy answer is the same as before. Running requests are finished first, within bounds. Exit 1 unless the
start was a hit that answers the same.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from warmops.answers import AnswerError, ask
from warmops.changes import ENGINE, WEIGHT_CACHE
from warmops.console import failure, say
from warmops.draining import Draining
from warmops.phases import UNATTRIBUTED, unattributed_share
from warmops.processes import engine_processes, still_alive
from warmops.project import Project, Remembered
from warmops.project_lock import alone
from warmops.starts import Recycling, Start, await_held, measure_start, recycling
from warmops.target import add_target, find_target
from warmops.units import mebibytes

_SHOWN_SECONDS = 0.01


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)


def run(arguments: argparse.Namespace) -> int:
    project, settings = find_target(arguments)
    with alone(project, "restart"):
        return _restart(project, settings, as_data=arguments.json)


def _restart(project: Project, settings: Remembered, *, as_data: bool) -> int:
    require_weight_cache(project)
    before = answer_now(project, settings)
    old = engine_processes(project)
    with Draining(project, settings, (ENGINE,)) as drained:
        say("recycling the engine; requests are held by the gateway meanwhile")
        way = recycling(project, load_first=lambda: _load_if_needed(project))
        start = measure_start(project, settings, _telling(way, drained))
    outcome = describe(start, before, survivors=still_alive(old), drained=drained)
    if as_data:
        print(json.dumps(outcome, indent=2, ensure_ascii=False))
    else:
        sys.stdout.write(as_text(outcome))
    return 0 if outcome["passed"] else 1


def _telling(way: Recycling, drained: Draining) -> Recycling:
    """The same, and who holds requests hears when the old engine is gone and when the new one serves."""

    def take_away() -> None:
        way.take_away()
        drained.gone()

    return replace(way, take_away=take_away, when_ready=drained.back)


def describe(
    start: Start, before: str | None, *, survivors: tuple[int, ...] = (), drained: Draining | None = None
) -> dict[str, Any]:
    """The outcome of one recycle as data; `before` is the greedy answer of the engine that was recycled.

    `moments` are unix seconds, `seconds` count from the moment at which the engine was told to end: when it
    was empty.
    """
    after = start.answer.text if start.answer is not None else None
    same = None if before is None else after == before
    hit = start.evidence.outcome == "hit"
    return {
        "outcome": start.evidence.outcome,
        "reason": start.evidence.reason,
        "sentence": start.evidence.sentence,
        "error": start.error,
        "seconds": {name: round(value, 3) for name, value in start.seconds.items()},
        "moments": {name: round(value, 3) for name, value in start.moments.items()},
        "mapped_bytes": start.evidence.mapped_bytes,
        "tensors": start.evidence.tensors,
        "answer_before": before,
        "answer": after,
        "same_answer": same,
        "old_processes_alive": list(survivors),
        "phases": [{"name": phase.name, "seconds": round(phase.seconds, 3)} for phase in start.phases],
        "compile_cache": _compile_cache(start),
        "drained": drained.as_data() if drained is not None else None,
        "unattributed": round(unattributed_share(start.phases), 4),
        "passed": hit and start.error is None and after is not None and same is not False and not survivors,
    }


def as_text(outcome: dict[str, Any]) -> str:
    """The outcome for a person, one fact a line."""
    seconds = outcome["seconds"]
    judged = outcome["outcome"] + (f": {outcome['reason']}" if outcome["reason"] else "")
    same = {True: "the same as before", False: "DIFFERENT from before", None: "nothing to compare with"}
    lines = [f"weights        {judged}"]
    if outcome["tensors"]:
        lines.append(f"mapped         {outcome['tensors']} tensors, {mebibytes(outcome['mapped_bytes'])}")
    if outcome["drained"] is not None:
        lines.append(f"drained        {_drained(outcome['drained'])}")
    lines += [f"{name:<14} after {value:.2f} s" for name, value in seconds.items()]
    lines += [f"  {name:<22} {value:6.2f} s" for name, value in _shown_phases(outcome["phases"])]
    if outcome["phases"]:
        lines.append(f"  {UNATTRIBUTED:<22} {outcome['unattributed']:6.1%}")
    lines.append(f"greedy answer  {same[outcome['same_answer']]}: {outcome['answer']!r}")
    if outcome["compile_cache"]:
        lines.append(f"compile cache  {outcome['compile_cache']}")
    if outcome["old_processes_alive"]:
        lines.append(f"old processes  still alive: {outcome['old_processes_alive']}")
    lines += [f"{name:<14} {outcome[name]}" for name in ("error", "sentence") if outcome[name]]
    return "\n".join(lines) + "\n"


def _drained(drained: Mapping[str, Any]) -> str:
    """What became of the requests that were running."""
    if not drained["requests"]:
        return "nothing was running"
    text = f"{drained['requests']} running requests in {drained['seconds']:.2f} s"
    return (
        f"{text}; {drained['left'] or 'none'} outlived it, {drained['cut_streams'] or 'no'} streams were cut"
    )


def _compile_cache(start: Start) -> str | None:
    """What was wrong with compiled code in this start, and was built anew."""
    mark = start.evidence.mark("compile-cache")
    return None if mark is None else f"{mark.fields.get('state')}: {mark.fields.get('sentence')}"


def _shown_phases(phases: Sequence[Mapping[str, Any]]) -> list[tuple[str, float]]:
    """Those that a person can feel, in order."""
    return [
        (phase["name"], phase["seconds"])
        for phase in phases
        if phase["seconds"] >= _SHOWN_SECONDS and phase["name"] != UNATTRIBUTED
    ]


def answer_now(project: Project, settings: Remembered) -> str | None:
    """The greedy answer of the engine as it is now; None when it does not answer."""
    try:
        key = project.api_key() if settings.needs_api_key else None
        return ask(settings.gateway_url, settings.served_model, api_key=key, timeout=60).text
    except AnswerError as error:
        say(f"the engine does not answer now ({error}); there will be nothing to compare with")
        return None


def require_weight_cache(project: Project) -> None:
    """Raises UserError (exit code 1) when no weight cache runs: then there is nothing to map from."""
    host = project.host_cache
    if host is not None:
        if host.status() is None:
            raise host.no_answer()
        return
    cache = project.container(WEIGHT_CACHE)
    if cache is None or not cache.running:
        state = "does not exist" if cache is None else f"is {cache.state}"
        raise failure(
            f"the weight cache of {project.name} {state}", f"make up PROJECT={project.name}", exit_code=1
        )


def _load_if_needed(project: Project) -> None:
    """With the engine stopped its memory is free: a weight cache that waited for room loads first."""
    status = project.supervisor_status() or {}
    if status.get("state") != "held":
        await_held(project)
