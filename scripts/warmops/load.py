"""`load`: clients load the gateway, an event happens in the middle, and what they felt is judged.

In: a running project, the shape of the load, the name of an event. Out: a table, report.json, report.html.
Exit 1 when clients felt more than the event's declaration allows, or the event could not be carried out.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from warmops.answers import AnswerError
from warmops.console import failure, heading
from warmops.drills import utc_now
from warmops.load_clients import Load
from warmops.load_events import carry_out, require_event
from warmops.load_html import render_html
from warmops.load_judge import judge_run, judge_series
from warmops.load_plan import EVENTS, EventSeen, LoadRun, LoadShape, Outcome
from warmops.load_report import LoadReport, to_json
from warmops.load_request import Asked, find_path, now
from warmops.load_table import show
from warmops.project import Project, Remembered
from warmops.report_files import as_text, host_facts, write_files
from warmops.restart import require_weight_cache
from warmops.target import add_target, find_target
from warmops.waiting import Progress

_TICK_SECONDS = 0.5
# Where nobody watches a live line, one is printed so often.
_LINE_SECONDS = 10.0
# A slow engine gets longer than was asked for, but not more than this, to answer every prompt once.
_PATIENCE_SECONDS = 120.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    parser.add_argument("--event", default="none", metavar="NAME", help=f"one of {', '.join(EVENTS)} (none)")
    parser.add_argument("--clients", type=int, default=8, metavar="N", help="clients at the same time (8)")
    parser.add_argument("--streaming", type=int, metavar="N", help="how many of them stream (half)")
    parser.add_argument(
        "--seconds", type=float, default=60.0, metavar="S", help="half before the event, half after it (60)"
    )
    parser.add_argument("--tokens", type=int, default=24, metavar="N", help="longest answer in tokens (24)")
    parser.add_argument(
        "--rate",
        type=float,
        metavar="R",
        help="requests a second of all clients; latency then counts from when each was due "
        "(default: each client sends as soon as it has its answer)",
    )
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="runs; medians are judged (1)")
    parser.add_argument(
        "--no-control",
        action="store_true",
        help="leave out the run that the event's added time is compared to; that time is not judged then",
    )


def run(arguments: argparse.Namespace) -> int:
    shape = shape_of(arguments)
    project, settings = find_target(arguments)
    require_event(arguments.event, project)
    require_weight_cache(project)
    asked = _where_to_ask(project, settings, shape)
    expectation = EVENTS[arguments.event]
    control = None if arguments.no_control else expectation.control
    events = (*((control,) if control else ()), arguments.event)
    started_at = utc_now()
    runs = []
    for repetition in range(1, arguments.repeat + 1):
        for event in events:
            heading(f"{event} ({repetition} of {arguments.repeat}): {EVENTS[event].purpose}")
            happen = None if event == "none" else _happening(event, project, settings)
            measured = measure(Load(asked, shape), shape, happen)
            runs.append(judge_run(replace(measured, event=event, repetition=repetition)))
    report = LoadReport(
        project=project.name,
        environment=settings.environment,
        model=settings.model,
        identity=settings.identity,
        started_at=started_at,
        host=host_facts(),
        event=arguments.event,
        shape=shape,
        runs=tuple(runs),
        findings=judge_series(arguments.event, runs, control=control),
    )
    folder = write_files(project.reports, report.started_at, to_json(report), render_html(report))
    if arguments.json:
        print(as_text(to_json(report)))
    show(report, folder)
    return 0 if report.passed else 1


def shape_of(arguments: argparse.Namespace) -> LoadShape:
    """The load that was asked for. Raises UserError (exit code 2) when there is no such load."""
    streaming = (arguments.clients + 1) // 2 if arguments.streaming is None else arguments.streaming
    for name, value, least in (
        ("clients", arguments.clients, 1),
        ("seconds", arguments.seconds, 1),
        ("tokens", arguments.tokens, 1),
        ("repeat", arguments.repeat, 1),
        ("streaming", streaming, 0),
    ):
        if not value >= least:
            raise failure(f"{name}: {value} is too little", f"give {least} or more", exit_code=2)
    if streaming > arguments.clients:
        raise failure(
            f"streaming: {streaming} is more than {arguments.clients} clients", "give fewer", exit_code=2
        )
    if streaming == 0 and arguments.event != "none":
        raise failure("streaming: without streams nobody sees a first token", "give 1 or more", exit_code=2)
    if arguments.rate is not None and not arguments.rate > 0:
        raise failure(f"rate: {arguments.rate} is no rate", "give more than 0", exit_code=2)
    return LoadShape(
        clients=arguments.clients,
        streaming=streaming,
        seconds=arguments.seconds,
        max_tokens=arguments.tokens,
        rate=arguments.rate,
    )


def measure(load: Load, shape: LoadShape, happen: Callable[[], EventSeen] | None) -> LoadRun:
    """Load the gateway for half the time, let the event happen, and go on for the other half.

    Each half lasts until every prompt was answered in it: else no answer could be compared.
    """
    seen: EventSeen | None = None
    begun_at = now()
    load.start()
    with Progress() as progress:
        watch = _Watch(load, progress)
        if happen is None:
            watch.for_seconds(shape.seconds, "no event")
        else:
            watch.for_seconds(shape.seconds / 2, "before the event")
            seen = watch.until_done(happen, "the event happens")
            watch.for_seconds(shape.seconds / 2, "after the event")
        progress.show("waiting for the last answers")
        requests, unsent = load.stop()
    return LoadRun(
        event="none",
        repetition=1,
        begun_at=begun_at,
        ended_at=now(),
        requests=requests,
        seen=seen,
        unsent=unsent,
    )


class _Watch:
    """Waits, and says meanwhile how many requests ended how."""

    def __init__(self, load: Load, progress: Progress) -> None:
        self._load, self._progress = load, progress
        self._next_line = 0.0

    def for_seconds(self, seconds: float, words: str) -> None:
        """So long, and longer while a prompt is not answered yet."""
        begun = now()
        while (passed := now() - begun) < seconds or (
            passed < seconds + _PATIENCE_SECONDS and not self._load.every_prompt_answered_since(begun)
        ):
            self._say(words)
            time.sleep(min(_TICK_SECONDS, max(seconds - passed, 0.05)))

    def until_done(self, happen: Callable[[], EventSeen], words: str) -> EventSeen:
        """The event, in this thread: whoever interrupts the load interrupts it too, and it cleans up."""
        done = threading.Event()

        def watch() -> None:
            while not done.wait(_TICK_SECONDS):
                self._say(words)

        watcher = threading.Thread(target=watch, name="watch", daemon=True)
        watcher.start()
        try:
            return happen()
        finally:
            done.set()
            watcher.join()

    def _say(self, words: str) -> None:
        if not sys.stderr.isatty() and time.monotonic() < self._next_line:
            return
        self._next_line = time.monotonic() + _LINE_SECONDS
        counts = self._load.counts()
        told = ", ".join(
            f"{counts[outcome]} {outcome}"
            for outcome in Outcome
            if counts[outcome] or outcome is Outcome.ANSWERED
        )
        self._progress.show(f"{words}: {told}")


def _happening(event: str, project: Project, settings: Remembered) -> Callable[[], EventSeen]:
    return lambda: carry_out(event, project, settings)


def _where_to_ask(project: Project, settings: Remembered, shape: LoadShape) -> Asked:
    """Raises UserError (exit code 1) when no engine answers: then there is nothing to load."""
    asked = Asked(
        base_url=settings.gateway_url,
        model=settings.served_model,
        api_key=project.api_key() if settings.needs_api_key else None,
        max_tokens=shape.max_tokens,
    )
    try:
        return replace(asked, path=find_path(asked))
    except AnswerError as error:
        raise failure(f"the engine does not answer: {error}", "make status", exit_code=1) from error
