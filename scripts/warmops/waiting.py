"""Waiting for a stack, with a line that says what is happening now.

In: a project that was just brought up. Out: the answer of a real completion through the gateway; or a
UserError (exit code 1) with the sentence of whoever gave up and its last log line.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

import requests

from warmops.answers import Answer, AnswerError, ask, is_ready
from warmops.changes import ENGINE, ENGINES, WEIGHT_CACHE, Container
from warmops.console import HEARTBEAT_SECONDS, failure, rich_console, say
from warmops.evidence import LogLine, StartEvidence, classify_start
from warmops.project import Project, Remembered

_ASK_SECONDS = 0.25
# Between two looks at containers and logs: several processes, for which an engine that starts has to wait.
_LOOK_SECONDS = 1.5
_MAX_CONTAINER_RESTARTS = 3
# A start that makes no step for so long is reported, not waited for; a large model's load is one step.
_PATIENCE_SECONDS = 3600.0
_STEPS = (
    ("ready", "ready"),
    ("weights", "weights are there, warming up"),
    ("load-begins", "loading weights"),
    ("engine-process", "setting up"),
    ("serve", "starting vLLM"),
    ("weight-cache-ready", "importing vLLM"),
    ("engine-start", "waiting for the weight cache"),
)


class Progress:
    """One live line on a terminal; elsewhere a line when the words change, and at times while they stay."""

    def __init__(self) -> None:
        console = rich_console()
        self._status = console.status("starting") if sys.stderr.isatty() else None
        self._begun = self._told = time.monotonic()
        self._said = ""

    def show(self, words: str) -> None:
        now = time.monotonic()
        age = f"{words} ({now - self._begun:.0f} s)"
        if self._status is not None:
            self._status.update(age)
        elif words != self._said:
            self._told = now
            say(words)
        elif now - self._told >= HEARTBEAT_SECONDS:
            self._told = now
            say(age)
        self._said = words

    def __enter__(self) -> Progress:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()


def await_serving(project: Project, settings: Remembered) -> Answer:
    """Until the engine is ready and answers the reference question; raises UserError when it never will."""
    with Progress() as progress:
        look = _Pace(_LOOK_SECONDS)
        _await(lambda: _engine_is_ready(project, settings, progress, look), project)
        progress.show("asking the model")
        key = project.api_key() if settings.needs_api_key else None
        try:
            return ask(settings.gateway_url, settings.served_model, api_key=key)
        except AnswerError as error:
            hint = f"make logs SERVICE=vllm PROJECT={project.name}"
            raise failure(f"the engine is ready and gives no answer: {error}", hint, exit_code=1) from error


def await_chat(project: Project, settings: Remembered) -> None:
    """Until the chat page answers. Raises UserError when its container ended."""
    if settings.webui_url is None:
        return
    with Progress() as progress:
        _await(lambda: _chat_is_ready(project, settings, progress), project)


def describe_engine(evidence: StartEvidence) -> str:
    """What the engine is doing, from the furthest mark or moment of its last start."""
    reached = {mark.event for mark in evidence.marks} | set(evidence.moments)
    return next((words for name, words in _STEPS if name in reached), "starting")


def describe_cache(status: dict[str, Any] | None) -> str:
    """What the weight cache is doing, from its supervisor's /status."""
    if status is None:
        return "starting"
    reason = status.get("reason")
    return str(status.get("state", "unknown")) + (f" ({reason})" if reason else "")


class _Pace:
    """Says when so many seconds have gone since it last said so."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._next = 0.0

    def due(self) -> bool:
        if time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + self._seconds
        return True


def _engine_is_ready(project: Project, settings: Remembered, progress: Progress, look: _Pace) -> bool:
    # Mostly one request is enough to see that a stack serves; docker is asked only when it does not.
    if not settings.standby and is_ready(settings.gateway_url):
        return True
    if not look.due():
        return False
    containers = {container.service: container for container in project.containers()}
    engines = ENGINES if settings.standby else (ENGINE,)
    wanted = engines if project.host_cache is not None else (WEIGHT_CACHE, *engines)
    if missing := [name for name in wanted if name not in containers]:
        gone = f"there is no {' and no '.join(missing)} any more"
        raise failure(gone, f"make up PROJECT={project.name}", exit_code=1)
    status = project.supervisor_status()
    if status is not None and status.get("state") == "failed":
        sentence = status.get("reason") or status.get("last_error") or "no reason given"
        raise _cache_gave_up(project, str(sentence), containers.get(WEIGHT_CACHE))
    doing = [f"weight cache: {describe_cache(status)}"]
    ready = True
    for name in engines:
        log = project.log(containers[name])
        evidence = classify_start(log, ranks=settings.ranks)
        doing.append(f"{name}: {describe_engine(evidence)}")
        ready = ready and evidence.ready
        if evidence.mark("gave-up") is not None:
            raise _gave_up(project, name, evidence.sentence or "no reason given", log)
    for name in wanted:
        # A first process that cannot even start is started again and again by the restart policy.
        container = containers[name]
        if container.state in ("exited", "dead") or container.restarts > _MAX_CONTAINER_RESTARTS:
            sentence = f"its container ended with code {container.exit_code}"
            raise _gave_up(project, container.service, sentence, project.log(container))
    progress.show(" | ".join(doing))
    return ready and is_ready(settings.gateway_url)


def _chat_is_ready(project: Project, settings: Remembered, progress: Progress) -> bool:
    try:
        if requests.get(f"{settings.webui_url}/health", timeout=2).status_code == 200:
            return True
    except requests.RequestException:
        progress.show("chat page: starting")
    container: Container | None = project.container("open-webui")
    if container is None or container.state in ("exited", "dead"):
        code = container.exit_code if container is not None else "unknown"
        log = project.log(container) if container is not None else []
        raise _gave_up(project, "open-webui", f"its container ended with code {code}", log)
    return False


def _await(done: Callable[[], bool], project: Project) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not done():
        if time.monotonic() > deadline:
            hint = f"make status PROJECT={project.name}"
            raise failure(f"the stack was not ready within {_PATIENCE_SECONDS:.0f} s", hint, exit_code=1)
        time.sleep(_ASK_SECONDS)


def _cache_gave_up(project: Project, sentence: str, cache: Container | None) -> Exception:
    host = project.host_cache
    if host is None:
        return _gave_up(project, WEIGHT_CACHE, sentence, project.log(cache) if cache is not None else [])
    hint = f"journalctl -u {host.unit}; then sudo systemctl restart {host.unit}"
    return failure(f"the weight cache does not hold the weights: {sentence}", hint, exit_code=1)


def _gave_up(project: Project, service: str, sentence: str, log: list[LogLine]) -> Exception:
    last = next((line.text.strip() for line in reversed(log) if line.text.strip()), "nothing")
    hint = f"last line of its log: {last[:300]}\nmake logs SERVICE={service} PROJECT={project.name}"
    return failure(f"{service} does not start: {sentence}", hint, exit_code=1)
