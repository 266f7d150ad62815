"""Emptying engines before they go: what they work on is finished, what is new goes elsewhere or waits.

In: a running project, the engines that will go. Out: how long it took, what was left to be cut, what was cut.
Requests go to another engine where one is ready; else the gateway holds them, and then the time is bounded by
what it holds for. It refuses to know how engines are taken away. A pause is renewed while they are emptied,
and the gateway ends it when an engine becomes ready: a program that was killed leaves none behind for long.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from warmops.changes import ENGINES
from warmops.console import warn
from warmops.project import Project, Remembered
from warmops.route import Route, pause, prefer_first, resume, set_order, show_route
from warmops.waiting import Progress

LOOK_SECONDS = 0.25
# Longer than a look at the gateway takes on a busy machine.
LEASE_SECONDS = 10
# The gateway takes no more; a container gets 30 s to stop.
STOPPING_SECONDS = 60


class Draining:
    """Around what takes engines away: they are empty when it begins. `gone` is called in it, once they are.

    Afterwards new requests are sent as before, whatever happened.
    """

    def __init__(self, project: Project, settings: Remembered, engines: Sequence[str]) -> None:
        self._project, self._settings = project, settings
        self._going = tuple(engines)
        self._other: str | None = None
        self._paused = self._moved = False
        self._bound_seconds = 0
        self._cut_before: int | None = None
        self.begun_at = self.ended_at = time.time()
        self.requests = 0  # the most that were running
        self.left = 0  # what outlived the time for it
        self.cut = 0  # answers that ended in their middle since then

    def __enter__(self) -> Draining:
        if not self._going:
            return self
        route = show_route(self._project)
        # Of an engine that is not ready nothing is to be waited for.
        self._going = tuple(name for name in self._going if route is not None and route.engine(name).ready)
        if route is None or not self._going:
            return self
        self._cut_before = route.cut
        self._count(route)
        try:
            self._drain(route)
        except BaseException:
            self._restore()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def gone(self) -> None:
        """The engines are gone: what is held now waits for one that is ready, and for nothing else."""
        if self._cut_before is None:
            return
        route = self._resume() if self._paused else show_route(self._project)
        if route is not None:
            self.cut = max(0, route.cut - self._cut_before)

    def back(self) -> None:
        """One of them serves again: new requests go to the first engine, as in a stack at rest."""
        if self._moved:
            prefer_first(self._project)
            self._moved = False

    def as_data(self) -> dict[str, Any]:
        return {
            "begun_at": round(self.begun_at, 3),
            "ended_at": round(self.ended_at, 3),
            "seconds": round(self.ended_at - self.begun_at, 3),
            "requests": self.requests,
            "left": self.left,
            "cut_streams": self.cut,
        }

    def _drain(self, route: Route) -> None:
        self._other = next(
            (name for name in ENGINES if name not in self._going and route.engine(name).ready), None
        )
        self._divert()
        with Progress() as progress:
            while self._diverted and self._work_is_left():
                if time.time() - self.begun_at > self._bound_seconds:
                    warn(f"{self.left} requests still run after {self._bound_seconds} s and will be cut")
                    break
                progress.show(f"{' and '.join(self._going)} finishes what is running")
                time.sleep(LOOK_SECONDS)
        self.ended_at = time.time()
        if self._paused:
            pause(self._project, STOPPING_SECONDS)

    def _count(self, seen: Route) -> None:
        self.left = sum(seen.engine(name).in_flight for name in self._going)
        self.requests = max(self.requests, self.left)

    @property
    def _diverted(self) -> bool:
        return self._moved or self._paused

    def _divert(self) -> None:
        """Send new requests elsewhere, or hold them. Where neither can be, nothing is waited for."""
        if self._other is not None:
            self._moved = set_order(self._project, self._other, *self._going) is not None
            self._bound_seconds = self._settings.drain_seconds
        elif self._settings.restart_drain_seconds:
            self._paused = pause(self._project, LEASE_SECONDS) is not None
            self._bound_seconds = self._settings.restart_drain_seconds

    def _work_is_left(self) -> bool:
        # A pause is renewed by looking. A gateway that does not tell is being restarted: it is asked again.
        seen = pause(self._project, LEASE_SECONDS) if self._paused else show_route(self._project)
        if seen is None:
            return True
        self._count(seen)
        if self._other is not None and not seen.engine(self._other).ready:
            self._other = None
            self._divert()
        return self.left > 0

    def _resume(self) -> Route | None:
        self._paused = False
        return resume(self._project)

    def _restore(self) -> None:
        if self._paused:
            self._resume()
        self.back()
