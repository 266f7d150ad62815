"""`bench`: stock `vllm serve` from disk, vLLM's weight cache with defaults, and this stack, in turn.

In: a running project. Out: a report with a series for each, medians, spread, and a picture of where the
seconds go. All use one image, one set of flags and one client path: the gateway, which holds the request
until an engine answers. Each start is measured from the moment at which the engine before it is gone to the
first token. Every answer must be the same.

`--beside` is for a GPU with room for two engines and little time: the others start while the stack's engine
lives and idles, and are asked in their own containers by the same client. Then no round has to bring the
stack's container back, which takes longer than what is measured.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from warmops.bench_engines import PLAIN, STOCK, OtherEngines, OtherStart
from warmops.console import failure, heading, say
from warmops.drill_plan import Finding
from warmops.drills import build_report, show, utc_now, write_report
from warmops.evidence import StartEvidence, classify_start
from warmops.moments import moments_in
from warmops.phases import phases_of
from warmops.processes import memory_bytes, memory_of_project
from warmops.project import Project, Remembered
from warmops.project_lock import alone
from warmops.report import Bench, Report, Run, Series, to_json
from warmops.report_svg import render_picture
from warmops.restart import answer_now, require_weight_cache
from warmops.starts import (
    Recycling,
    Start,
    measure_start,
    recycling,
    start_all,
    start_engine,
    stop_all,
    stop_engine,
)
from warmops.target import add_target, find_target
from warmops.waiting import await_serving

PAGE_CACHE = "warm: never dropped, and one stock start that is not counted read the checkpoint before"
PAGE_CACHE_WARM = "warm: never dropped, and the weight cache read the checkpoint before"
TITLES = {
    "stock": "stock vllm serve from disk, vLLM's defaults",
    "plain": "ipc_cache with vLLM's defaults, new container",
    "container": "this stack, new start of its container",
    "restart": "this stack, make restart",
    "cold": "this stack from nothing: weight cache and engine, new",
}
# A cold start is another question than a restart, and takes the weights away: only where it is asked for.
_USUAL = tuple(kind for kind in TITLES if kind != "cold")
# A new start of the container would end what the others run beside.
_BESIDE = tuple(kind for kind in _USUAL if kind != "container")
_TOLD_PHASES = 3
_FROM_DISK = re.compile(r"Loading weights took")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="starts of each kind (5)")
    parser.add_argument(
        "--kinds",
        metavar="A,B",
        help=f"which starts, of {', '.join(TITLES)} (all but cold; beside this one: {', '.join(_BESIDE)})",
    )
    parser.add_argument(
        "--no-first", action="store_true", help="no stock start that is not counted: the page cache is warm"
    )
    parser.add_argument(
        "--beside", action="store_true", help="other engines start while this one lives: needs their memory"
    )


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What is compared and how. `beside`: the others start while the stack's engine lives; `first`: one stock
    start that is not counted comes before all.
    """

    kinds: tuple[str, ...]
    repeat: int
    beside: bool = False
    first: bool = True


def run(arguments: argparse.Namespace) -> int:
    wanted = comparison_of(arguments)
    project, settings = find_target(arguments)
    if "cold" in wanted.kinds and project.host_cache is not None:
        raise failure("a weight cache of the host is not ours to stop", "leave out cold", exit_code=2)
    if settings.standby:
        hint = "make up with engine.standby: false first"
        raise failure("a standby would answer for the engine that is measured", hint, exit_code=1)
    with alone(project, "bench"):
        report, folder = _bench(project, settings, wanted)
    if arguments.json:
        print(json.dumps(to_json(report), indent=2, ensure_ascii=False))
    show(report, folder)
    return 0 if report.passed else 1


def comparison_of(arguments: argparse.Namespace) -> Comparison:
    """Raises UserError (exit code 2) when there is no such comparison."""
    if arguments.repeat < 1:
        raise failure(f"repeat: {arguments.repeat} is not a count", "give 1 or more", exit_code=2)
    usual = _BESIDE if arguments.beside else _USUAL
    kinds = usual if arguments.kinds is None else kinds_of(arguments.kinds)
    if arguments.beside and (ending := [kind for kind in kinds if kind not in _BESIDE]):
        raise failure(
            f"kinds: {', '.join(ending)} would end the engine that the others run beside",
            f"leave out --beside, or give some of {', '.join(_BESIDE)}",
            exit_code=2,
        )
    return Comparison(
        kinds=kinds, repeat=arguments.repeat, beside=arguments.beside, first=not arguments.no_first
    )


def kinds_of(text: str) -> tuple[str, ...]:
    """Names in the order of TITLES. Raises UserError (exit code 2) for one that does not exist."""
    wanted = [word.strip() for word in text.split(",") if word.strip()]
    for word in wanted:
        if word not in TITLES:
            raise failure(f"kinds: there is no {word}", f"some of {', '.join(TITLES)}", exit_code=2)
    if "stock" not in wanted:
        raise failure("kinds: stock is what the others are measured by", "add stock", exit_code=2)
    return tuple(kind for kind in TITLES if kind in wanted)


def _bench(project: Project, settings: Remembered, wanted: Comparison) -> tuple[Report, Path]:
    """The report is written after each round: one that is interrupted leaves the rounds before."""
    require_weight_cache(project)
    expected = answer_now(project, settings)
    started_at = utc_now()
    runs: list[Run] = []
    if not wanted.beside:
        stop_engine(project)
    others = OtherEngines.make(project, settings, beside=wanted.beside)
    try:
        if wanted.first:
            heading("one stock start that is not counted, so that the page cache is warm")
            others.start(STOCK)
            others.stop(STOCK)
        for repetition in range(1, wanted.repeat + 1):
            heading(f"start {repetition} of {wanted.repeat} of each kind")
            runs += _one_of_each(project, settings, others, wanted.kinds, repetition, expected)
            bench = summarise(runs, expected, wanted.kinds, first=wanted.first)
            report = build_report(project, settings, runs, started_at=started_at, bench=bench)
            folder = write_report(report, project.reports)
            picture = render_picture(middle_runs(runs), TITLES)
            (folder / "starts.svg").write_text(picture + "\n", encoding="utf-8")
            if "cold" in wanted.kinds and repetition < wanted.repeat:
                # The containers of vLLM's defaults joined the namespace of a weight cache that is gone now.
                others = OtherEngines.make(project, settings, beside=wanted.beside)
    finally:
        others.remove()
        start_engine(project)
    await_serving(project, settings)
    return report, folder


def summarise(
    runs: list[Run], expected: str | None, kinds: tuple[str, ...] = _USUAL, *, first: bool = True
) -> Bench | None:
    """One series for each kind; None when one of them has no measured start."""
    series = tuple(Series(kind=kind, title=TITLES[kind], seconds=_first_tokens(runs, kind)) for kind in kinds)
    if not all(one.seconds for one in series):
        return None
    same = expected is not None and all(run.answer == expected for run in runs)
    page_cache = PAGE_CACHE if first else PAGE_CACHE_WARM
    return Bench(page_cache=page_cache, series=series, same_answer=same)


def _first_tokens(runs: list[Run], kind: str) -> tuple[float, ...]:
    return tuple(r.seconds["first token"] for r in runs if r.kind == kind and "first token" in r.seconds)


def middle_runs(runs: list[Run]) -> list[Run]:
    """Of each kind the run whose time to the first token is the median, or the one below it."""
    found = []
    for kind in TITLES:
        of_kind = [run for run in runs if run.kind == kind and "first token" in run.seconds]
        of_kind.sort(key=lambda run: run.seconds["first token"])
        found += of_kind[(len(of_kind) - 1) // 2 :][:1]
    return found


def _one_of_each(
    project: Project,
    settings: Remembered,
    others: OtherEngines,
    kinds: tuple[str, ...],
    repetition: int,
    expected: str | None,
) -> list[Run]:
    """Begins and ends with the stack's own engine stopped; where the others run beside it, with it alive."""
    runs = []
    for kind, service in {"stock": STOCK, "plain": PLAIN}.items():
        if kind not in kinds:
            continue
        start = others.start(service)
        memory = {service: memory_bytes(project.docker, others.container(service))}
        stop_seconds = others.stop(service)
        runs.append(_other_run(kind, start, memory, stop_seconds, settings, repetition, expected))
        say(_told(runs[-1], start.error))
    if not any(kind in kinds for kind in ("container", "restart", "cold")):
        return runs
    ways = _own_ways(project, settings)
    if "container" not in kinds and "restart" in kinds and not others.beside:
        start_engine(project)
        await_serving(project, settings)
    for kind in kinds:
        if kind not in ways:
            continue
        own = measure_start(project, settings, ways[kind])
        runs.append(_own_run(project, kind, own, repetition, expected))
        say(_told(runs[-1], own.error))
    if not others.beside:
        stop_engine(project)
    return runs


def _own_ways(project: Project, settings: Remembered) -> dict[str, Recycling]:
    """How this stack's own starts are made; the engine is stopped before the first, and runs after each."""
    return {
        "container": Recycling(take_away=lambda: None, bring_back=lambda: start_engine(project)),
        "restart": recycling(project),
        "cold": Recycling(
            take_away=lambda: stop_all(project), bring_back=lambda: start_all(project, settings)
        ),
    }


def _own_run(project: Project, kind: str, start: Start, repetition: int, expected: str | None) -> Run:
    moments = {name: t for name, t in start.moments.items() if name != "asked"}
    seconds = _since_stopped(moments)
    if kind != "container":
        seconds["stop"] = start.moments["stopped"] - start.moments["asked"]
    answer = start.answer.text if start.answer is not None else None
    return Run(
        kind=kind,
        repetition=repetition,
        evidence=start.evidence,
        findings=(_hit(start.evidence), _same(answer, expected)),
        phases=phases_of(start.evidence, moments),
        seconds=seconds,
        memory_bytes=memory_of_project(project),
        answer=answer,
    )


def _other_run(
    kind: str,
    start: OtherStart,
    memory: dict[str, int | None],
    stop_seconds: float,
    settings: Remembered,
    repetition: int,
    expected: str | None,
) -> Run:
    if kind == "stock":
        evidence = StartEvidence(
            outcome="unknown",
            reason="stock engine: loads from disk, asks no weight cache",
            moments=moments_in((line.text, line.t) for line in start.lines),
        )
        judged = _from_disk(start)
    else:
        evidence = classify_start(start.lines, ranks=settings.ranks)
        judged = _hit(evidence)
    answer = start.answer.text if start.answer is not None else None
    return Run(
        kind=kind,
        repetition=repetition,
        evidence=evidence,
        findings=(judged, _same(answer, expected)),
        phases=phases_of(evidence, start.moments),
        seconds=_since_stopped(start.moments) | {"stop": stop_seconds},
        memory_bytes=memory,
        answer=answer,
    )


def _since_stopped(moments: Mapping[str, float]) -> dict[str, float]:
    names = {"ready": "ready", "first-token": "first token"}
    begun = moments["stopped"]
    return {name: moments[key] - begun for key, name in names.items() if key in moments}


def _told(run: Run, error: str | None) -> str:
    """One line while the others still start: the time, and what took most of it."""
    if "first token" not in run.seconds:
        return f"{run.kind}: no answer: {error}"
    longest = sorted(run.phases, key=lambda phase: -phase.seconds)[:_TOLD_PHASES]
    where = ", ".join(f"{phase.name} {phase.seconds:.1f}" for phase in longest)
    return f"{run.kind}: first token after {run.seconds['first token']:.2f} s ({where})"


def _hit(evidence: StartEvidence) -> Finding:
    found = evidence.outcome + (f" ({evidence.reason})" if evidence.reason else "")
    return Finding(name="engine start", expected="hit", found=found, ok=evidence.outcome == "hit")


def _from_disk(start: OtherStart) -> Finding:
    from_disk = any(_FROM_DISK.search(line.text) for line in start.lines)
    found = "from disk" if from_disk else "no sign of a load from disk in its log"
    return Finding(name="weights", expected="from disk", found=found, ok=from_disk)


def _same(answer: str | None, expected: str | None) -> Finding:
    same = answer is not None and answer == expected
    found = "the same" if same else f"{expected!r} became {answer!r}"
    return Finding(name="answer", expected="the same as before the bench", found=found, ok=same)
