"""Carrying out the event of a load on a running stack, and when each of its phases was.

In: the name of an event, a running project. Out: an `EventSeen`, with the error when it could not be carried
out. What clients may feel of it is the matter of `load_plan`. `restart` and `roll` are the project's own
commands, run as a person would run them, in a process that takes no time from the clients' threads.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from warmops.changes import ENGINE, ENGINES, Container
from warmops.console import failure, say
from warmops.load_plan import EVENTS, Band, EventSeen
from warmops.load_request import now
from warmops.processes import engine_tree, kill_by_id
from warmops.project import Project, Remembered
from warmops.route import Route, show_route
from warmops.second_engine import SecondEngine
from warmops.starts import START_SECONDS, EngineFailed

_LOOK_SECONDS = 1.0
# Long enough to see what an idle engine costs, which is next to nothing.
_BOTH_SECONDS = 2.0
# A hang that takes longer to be noticed is not worth a load: everything waits for it.
_LONGEST_HANG_SECONDS = 60.0
_HANG_VARIABLE = "WARMSTACK_HANG_SECONDS="


def require_event(event: str, project: Project) -> None:
    """Raises UserError (exit code 2) when there is no such event, or this stack cannot have it."""
    if event not in EVENTS:
        raise failure(f"there is no event {event}", f"one of {', '.join(EVENTS)}", exit_code=2)
    if event == "standby-kill" and not _both_ready(show_route(project)):
        raise failure(
            f"{project.name} has no second engine that is ready to take over",
            "set `engine.standby: true` in environment.yaml, then make up",
            exit_code=2,
        )
    if event == "hang" and not 0 < (seconds := _hang_seconds(project)) <= _LONGEST_HANG_SECONDS:
        after = f"only after {seconds:.0f} s" if seconds else "never"
        raise failure(
            f"an engine of {project.name} counts as hung {after}",
            "set `engine.hang_seconds: 10` in environment.yaml, then make up",
            exit_code=2,
        )


def _hang_seconds(project: Project) -> float:
    """After how long without a token its PID 1 replaces an engine; 0: never."""
    words = [
        word
        for found in project.inspected()
        if (found["Config"].get("Labels") or {}).get("com.docker.compose.service") == ENGINE
        for word in found["Config"].get("Env") or ()
        if word.startswith(_HANG_VARIABLE)
    ]
    return float(words[0].removeprefix(_HANG_VARIABLE)) if words else 0.0


def _both_ready(route: Route | None) -> bool:
    return route is not None and all(route.engine(name).ready for name in ENGINES)


def carry_out(event: str, project: Project, settings: Remembered) -> EventSeen:
    """Carry out one event and wait until the stack is as it was before."""
    actions: Mapping[str, Callable[[Project, Remembered], EventSeen]] = {
        "restart": _restart,
        "roll": _roll,
        "kill": _kill,
        "hang": _hang,
        "standby-kill": _kill_with_standby,
        "surge-only": _surge_only,
    }
    begun_at = now()
    try:
        return actions[event](project, settings)
    except EngineFailed as failed:
        return EventSeen(begun_at=begun_at, ended_at=now(), error=str(failed))


def _restart(project: Project, settings: Remembered) -> EventSeen:
    code, told = _command(project, "restart")
    moments = told.get("moments", {})
    if "asked" not in moments or "stopped" not in moments:
        raise EngineFailed(f"`warm restart` ended with exit code {code} and told no moments")
    begun_at = float((told.get("drained") or {}).get("begun_at", moments["asked"]))
    names = {
        "asked": "draining",
        "stopped": "stopping",
        "ready": "starting",
        "first-token": "first answer",
    }
    bands, begin = [], begun_at
    for key, name in names.items():
        if key in moments:
            bands.append(Band(name=name, begin=begin, end=max(begin, moments[key])))
            begin = bands[-1].end
    error = told.get("error") or ("" if code == 0 else f"`warm restart` ended with exit code {code}")
    return EventSeen(
        begun_at=begun_at,
        ended_at=begin,
        bands=tuple(bands),
        error=error or None,
    )


def _roll(project: Project, settings: Remembered) -> EventSeen:
    begun_at = now()
    code, told = _command(project, "roll")
    bands = tuple(
        Band(name=str(step["name"]), begin=float(step["begun_at"]), end=float(step["ended_at"]))
        for step in told.get("steps", [])
    )
    error = told.get("error") or ("" if code == 0 else f"`warm roll` ended with exit code {code}")
    return EventSeen(begun_at=begun_at, ended_at=now(), bands=bands, error=error or None)


def _kill(project: Project, settings: Remembered) -> EventSeen:
    engine = _running(project, ENGINE)
    killed = _kill_engine(project, engine)
    started, ready = _await_back(project, settings, engine, since=killed[0])
    bands = (
        Band(name="down", begin=killed[0], end=started),
        Band(name="starting", begin=started, end=ready),
    )
    return EventSeen(begun_at=killed[0], ended_at=ready, bands=bands, ending=killed)


def _hang(project: Project, settings: Remembered) -> EventSeen:
    engine = _running(project, ENGINE)
    stopped, _ = _kill_engine(project, engine, signal="STOP")
    started, ready = _await_back(project, settings, engine, since=stopped)
    bands = (
        Band(name="hung", begin=stopped, end=started),
        Band(name="starting", begin=started, end=ready),
    )
    return EventSeen(begun_at=stopped, ended_at=ready, bands=bands, ending=(stopped, started))


def _kill_with_standby(project: Project, settings: Remembered) -> EventSeen:
    route = show_route(project)
    engine = _running(project, (route.serving if route is not None else None) or ENGINE)
    killed = _kill_engine(project, engine)
    _, ready = _await_back(project, settings, engine, since=killed[0])
    bands = (Band(name="the other engine serves", begin=killed[0], end=ready),)
    return EventSeen(begun_at=killed[0], ended_at=ready, bands=bands, ending=killed)


def _surge_only(project: Project, settings: Remembered) -> EventSeen:
    second = SecondEngine.make(project, settings)
    try:
        begun = now()
        second.start()
        ready = now()
        time.sleep(_BOTH_SECONDS)
        stopping = now()
        second.stop()
        ended = now()
    finally:
        second.remove()
    bands = (
        Band(name="second engine starting", begin=begun, end=ready),
        Band(name="two engines", begin=ready, end=stopping),
        Band(name="second engine stopping", begin=stopping, end=ended),
    )
    return EventSeen(begun_at=begun, ended_at=ended, bands=bands)


def _kill_engine(project: Project, engine: Container, *, signal: str = "KILL") -> tuple[float, float]:
    """A signal to every process of the engine; between which unix seconds it was sent."""
    victims = engine_tree(project, engine)
    if not victims:
        raise EngineFailed("the engine has no process to kill")
    return kill_by_id(project.docker, engine.id, (process.pid for process in victims), signal=signal)


def _await_back(
    project: Project, settings: Remembered, engine: Container, *, since: float
) -> tuple[float, float]:
    """Until the killed engine has started again and is ready: both moments, unix seconds, by its own marks.

    It is asked seldom: questions to docker take time from the engine on a small machine.
    """
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        evidence = project.evidence_of(engine, ranks=settings.ranks)
        start, ready = evidence.mark("engine-start"), evidence.mark("ready")
        if evidence.mark("gave-up") is not None:
            raise EngineFailed(evidence.sentence or "the engine gave up")
        if start is not None and ready is not None and start.t >= since:
            return start.t, ready.t
        time.sleep(_LOOK_SECONDS)
    raise EngineFailed(f"the engine was not ready within {START_SECONDS:.0f} s")


def _running(project: Project, service: str) -> Container:
    found = project.container(service)
    if found is None or not found.running:
        raise EngineFailed(f"{service} does not run")
    return found


def _command(project: Project, name: str) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON of one of the project's commands; what it says on the way is passed on."""
    words = (sys.executable, "-m", "warmops", name, "--project", project.name, "--json")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        passing_on = threading.Thread(target=_pass_on, args=(process.stderr,), daemon=True)
        passing_on.start()
        told = process.stdout.read()
        passing_on.join()
        code = process.wait()
    try:
        value = json.loads(told)
    except ValueError:
        value = {}
    return code, value if isinstance(value, dict) else {}


def _pass_on(lines: Sequence[str] | Any) -> None:
    for line in lines:
        say(line.rstrip("\n"))
