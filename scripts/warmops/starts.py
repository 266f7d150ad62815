"""Recycling the engine, and measuring what a client feels of it.

In: a running project, and the steps that take its engine away and bring it back. Out: a `Start`: evidence
from the engine's log, moments, and the answer to a request that was sent while no engine lived.
Time to ready is polled from the gateway every few hundredths of a second, not rounded to a health interval.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from warmops.answers import Answer, AnswerError, ask, is_ready
from warmops.changes import ENGINE, ENGINES, SURGE, WEIGHT_CACHE, Container
from warmops.console import failure, say
from warmops.evidence import StartEvidence
from warmops.phases import Phase, phases_of
from warmops.project import Project, Remembered
from warmops.route import show_route

POLL_SECONDS = 0.05
LOOK_SECONDS = 1.0
START_SECONDS = 900.0
RENEW_SECONDS = 90.0
# A gateway that holds for less time than an engine start takes answers 503: the request is sent again.
_RETRY_STATUS = (502, 503, 504)


@dataclass(frozen=True, kw_only=True)
class Start:
    """One engine start. `moments` are unix seconds; `error` says why it never became ready."""

    evidence: StartEvidence
    moments: Mapping[str, float]
    answer: Answer | None
    error: str | None = None

    @property
    def phases(self) -> tuple[Phase, ...]:
        return phases_of(self.evidence, self.moments)

    @property
    def seconds(self) -> dict[str, float]:
        """Durations since the start was asked for, in seconds."""
        asked = self.moments["asked"]
        names = {"stopped": "stop", "ready": "ready", "first-token": "first token"}
        return {name: self.moments[key] - asked for key, name in names.items() if key in self.moments}


@dataclass(frozen=True, kw_only=True)
class Recycling:
    """How an engine is taken away and brought back. `take_away` ends when no old engine answers any more.

    `when_ready` follows as soon as the new one is seen ready, before anything is asked of it.
    """

    take_away: Callable[[], None]
    bring_back: Callable[[], None] = field(default=lambda: None)
    when_ready: Callable[[], None] = field(default=lambda: None)


def measure_start(project: Project, settings: Remembered, recycling: Recycling) -> Start:
    """Take the engine away, bring it back, and measure until the first token of a request held meanwhile.

    Beside a second engine nothing is held: the request is sent once the gateway sees this one ready again.
    """
    beside = project.container(SURGE) is not None
    moments = {"asked": time.time()}
    recycling.take_away()
    moments["stopped"] = time.time()
    request = HeldRequest(settings, project.api_key())
    if not beside:
        request.start()
    error: str | None = None
    try:
        recycling.bring_back()
        moments["ready"] = await_engine(project, settings, since=moments["asked"], beside=beside)
        recycling.when_ready()
        if beside:
            request.start()
    except EngineFailed as failed:
        error = str(failed)
        request.give_up()
    answer = request.result()
    if answer is not None:
        moments["first-token"] = answer.sent_at + answer.first_token_seconds
    elif error is None:
        error = f"no answer came: {request.error}"
    engine = project.container(ENGINE)
    if engine is not None and engine.started_at >= moments["asked"]:
        moments["container"] = engine.started_at
    evidence = project.engine_evidence(ranks=settings.ranks)
    return Start(evidence=evidence, moments=moments, answer=answer, error=error)


class EngineFailed(Exception):
    """The engine will not become ready; the sentence is from its own marks or the container's state."""


def await_engine(
    project: Project,
    settings: Remembered,
    *,
    since: float,
    beside: bool = False,
    service: str = ENGINE,
    seconds: float = START_SECONDS,
) -> float:
    """Unix second at which an engine, started after `since`, was first seen ready through the gateway.

    `beside`: another engine is there too, so that the gateway's `/ready` tells nothing of this one.
    """
    deadline = time.monotonic() + seconds
    next_look = time.monotonic() + LOOK_SECONDS
    while time.monotonic() < deadline:
        if _is_ready_beside(project, service) if beside else is_ready(settings.gateway_url):
            ready_at = time.time()
            start = _evidence(project, settings, service).mark("engine-start")
            if start is not None and start.t >= since:
                return ready_at
        if time.monotonic() >= next_look:
            _raise_if_hopeless(_evidence(project, settings, service))
            next_look = time.monotonic() + LOOK_SECONDS
        time.sleep(POLL_SECONDS)
    raise EngineFailed(f"the engine was not ready within {seconds:.0f} s")


def _is_ready_beside(project: Project, service: str) -> bool:
    """The gateway's account tells of each engine; its `/ready`, which is quicker to ask, of any."""
    route = show_route(project)
    return route is not None and route.engine(service).ready


def _evidence(project: Project, settings: Remembered, service: str) -> StartEvidence:
    return project.evidence_of(project.container(service), ranks=settings.ranks)


def _raise_if_hopeless(evidence: StartEvidence) -> None:
    if evidence.mark("gave-up") is not None:
        raise EngineFailed(evidence.sentence or "the engine gave up")


class HeldRequest(threading.Thread):
    """The reference question, sent while no engine lives; the gateway holds it and the new engine answers."""

    def __init__(self, settings: Remembered, api_key: str | None, seconds: float = START_SECONDS) -> None:
        super().__init__(name="held-request", daemon=True)
        self._settings, self._api_key = settings, api_key if settings.needs_api_key else None
        self._deadline = time.monotonic() + seconds
        self._given_up = threading.Event()
        self._answer: Answer | None = None
        self.error: str | None = None

    def run(self) -> None:
        while not self._given_up.is_set() and time.monotonic() < self._deadline:
            try:
                self._answer = ask(
                    self._settings.gateway_url, self._settings.served_model, api_key=self._api_key
                )
                return
            except AnswerError as error:
                self.error = str(error)
                if error.status is not None and error.status not in _RETRY_STATUS:
                    return
                self._given_up.wait(POLL_SECONDS)

    def give_up(self) -> None:
        """Send it no more, and do not wait for one that is held."""
        self._given_up.set()

    def result(self) -> Answer | None:
        """The answer; None when there is none, or when the request was given up or never sent."""
        if not self._given_up.is_set() and self.ident is not None:
            self.join(max(0.0, self._deadline - time.monotonic()))
        return self._answer


def recycling(project: Project, load_first: Callable[[], None] = lambda: None) -> Recycling:
    """A new engine process in the engine's container where its PID 1 can start one; else the container is
    stopped and started, and `load_first` is carried out in between.
    """
    renewed = False

    def take_away() -> None:
        nonlocal renewed
        renewed = renew_engine(project)
        if not renewed:
            stop_engine(project)

    def bring_back() -> None:
        if not renewed:
            load_first()
            start_engine(project)

    return Recycling(take_away=take_away, bring_back=bring_back)


def renew_engine(project: Project) -> bool:
    """Ask the container's PID 1 for a new engine process; ends when the old one is gone. False: it cannot."""
    engine, cache = project.container(ENGINE), project.container(WEIGHT_CACHE)
    if engine is None or not engine.running:
        return False
    if project.host_cache is None and not (cache is not None and _shares_namespace(engine, cache)):
        return False
    told = project.docker.execute(
        engine.id, "warmstack-engine-restart", check=False, quiet=False, timeout_seconds=RENEW_SECONDS
    )
    if not told.ok:
        say(f"no new process in the old container ({told.stderr.strip() or told.returncode}): restarting it")
    return told.ok


def _shares_namespace(engine: Container, cache: Container) -> bool:
    """Whether a new process in the engine's container would see this weight cache's shared memory."""
    return engine.joined_ipc in (None, cache.id) and cache.running and cache.started_at <= engine.started_at


def stop_engine(project: Project) -> None:
    """Stop the engine's container within its own grace period."""
    engine = _engine(project)
    project.docker.run("stop", engine.id)


def stop_all(project: Project) -> None:
    """Take engines and weight cache away. Engines first: the weights are unmapped before they are freed."""
    for service in (*ENGINES, WEIGHT_CACHE):
        project.remove(service)


def start_all(project: Project, settings: Remembered) -> None:
    """Weight cache and engines from nothing, both at once: the engine waits by itself."""
    engines = ENGINES if settings.standby else (ENGINE,)
    project.compose.run("up", "--detach", WEIGHT_CACHE, *engines)


def start_engine(project: Project) -> None:
    """Start the stopped engine; a new container when the old one joined a namespace that is gone."""
    engine, cache = project.container(ENGINE), project.container(WEIGHT_CACHE)
    if project.host_cache is not None and engine is not None:
        project.docker.run("start", engine.id)
        return
    if cache is None or not cache.running:
        raise failure("the weight cache does not run", f"make up PROJECT={project.name}", exit_code=1)
    if engine is None or (engine.joined_ipc is not None and engine.joined_ipc != cache.id):
        say(
            "the engine's container joined the IPC namespace of a weight cache that is gone: making a new one"
        )
        recreate_engine(project)
    else:
        project.docker.run("start", engine.id)


def recreate_engine(project: Project) -> None:
    project.compose.run("up", "--detach", "--no-deps", "--force-recreate", ENGINE)


def await_held(project: Project, *, seconds: float = START_SECONDS) -> None:
    """Until the weight cache holds the weights. Raises EngineFailed when its supervisor gave up."""
    deadline = time.monotonic() + seconds
    said = ""
    while time.monotonic() < deadline:
        status = project.supervisor_status()
        state = str((status or {}).get("state", "not answering"))
        if state == "held":
            return
        reason = str((status or {}).get("reason") or "")
        if state == "failed":
            raise EngineFailed(f"the weight cache gave up: {reason or 'no reason given'}")
        if said != f"{state}{reason}":
            said = f"{state}{reason}"
            say(f"weight cache: {state}" + (f" ({reason})" if reason else ""))
        time.sleep(LOOK_SECONDS / 2)
    raise EngineFailed(f"the weight cache held no weights within {seconds:.0f} s")


def _engine(project: Project) -> Container:
    engine = project.container(ENGINE)
    if engine is None:
        raise failure("there is no engine container", f"make up PROJECT={project.name}", exit_code=1)
    return engine
