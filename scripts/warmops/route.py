"""The gateway's own account of the engines: who is ready, what each is working on, who is asked first.

In: a running gateway. Out: a `Route`, or None while the gateway does not tell; a new order of preference,
which the gateway keeps over its restarts; and a pause, which it ends by itself. The order is no ban: a later
engine is used when no earlier one is ready.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from warmops.changes import ENGINE, ENGINES, Container
from warmops.docker import Completed, DockerError
from warmops.project import Project

GATEWAY = "gateway"
_COMMAND = "warmstack-gateway-route"
_ANSWER_SECONDS = 15.0
_SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class RoutedEngine:
    """An engine as the gateway sees it; `in_flight` counts the requests that it is working on."""

    ready: bool = False
    in_flight: int = 0


@dataclass(frozen=True, kw_only=True)
class Route:
    """`order` is the preference for new requests, `waiting` how many are held.

    `paused_seconds`: they are held for so long yet though engines are ready. `cut`: answers that an engine
    ended in their middle since the gateway started.
    """

    order: tuple[str, ...]
    engines: Mapping[str, RoutedEngine] = field(default_factory=dict)
    waiting: int = 0
    paused_seconds: float = 0.0
    cut: int = 0

    def engine(self, name: str) -> RoutedEngine:
        return self.engines.get(name, RoutedEngine())

    @property
    def serving(self) -> str | None:
        """The engine that gets new requests now."""
        return next((name for name in self.order if self.engine(name).ready), None)


def show_route(project: Project, gateway: Container | None = None) -> Route | None:
    """What the gateway says; None when it does not run, or is too old to know."""
    told = _ask(project, gateway, "show")
    return parse_route(told.stdout) if told is not None and told.ok else None


def set_order(project: Project, *order: str) -> Route | None:
    """Prefer the engines in this order from now on; None when the gateway did not take it."""
    told = _ask(project, None, "set", *order, quiet=False)
    return parse_route(told.stdout) if told is not None and told.ok else None


def pause(project: Project, seconds: int) -> Route | None:
    """Hold new requests for so long from now, at most a minute; None when the gateway does not."""
    told = _ask(project, None, "pause", str(seconds))
    return parse_route(told.stdout) if told is not None and told.ok else None


def resume(project: Project) -> Route | None:
    """Send new requests again; None when the gateway does not answer."""
    told = _ask(project, None, "resume")
    return parse_route(told.stdout) if told is not None and told.ok else None


def prefer_first(project: Project) -> None:
    """The order of a stack at rest: a roll that was given up may have left another."""
    route = show_route(project)
    if route is not None and route.order[:1] != (ENGINE,):
        set_order(project, *ENGINES)


def parse_route(text: str) -> Route | None:
    """The JSON of `warmstack-gateway-route`; None for anything else."""
    try:
        value = json.loads(text)
        if value["schema"] != _SCHEMA:
            return None
        return Route(
            order=tuple(str(name) for name in value["order"]),
            engines={str(name): _engine(found) for name, found in value["engines"].items()},
            waiting=int(value.get("waiting", 0)),
            paused_seconds=float(value.get("paused_seconds", 0.0)),
            cut=int(value.get("cut", 0)),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _engine(found: Mapping[str, Any]) -> RoutedEngine:
    return RoutedEngine(ready=found["ready"] is True, in_flight=int(found.get("in_flight", 0)))


def _ask(project: Project, gateway: Container | None, *words: str, quiet: bool = True) -> Completed | None:
    gateway = gateway or project.container(GATEWAY)
    if gateway is None or not gateway.running:
        return None
    try:
        return project.docker.execute(
            gateway.id, _COMMAND, *words, check=False, quiet=quiet, timeout_seconds=_ANSWER_SECONDS
        )
    except DockerError:
        return None
