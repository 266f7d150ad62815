"""Carrying out a roll: what its table asks of real containers, and the facts that the table decides on.

In: a project, the proposal it shall run, the record of the roll. Out: steps with their times; or RollFailed
with a sentence. Which step comes when is the matter of `roll_plan`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from warmops.answers import AnswerError
from warmops.changes import ENGINE, ENGINES, SURGE, WEIGHT_CACHE, Container
from warmops.console import say, warn
from warmops.docker import DockerError
from warmops.engine_answers import ask_engine, same_answer
from warmops.evidence import classify_start, start_failure
from warmops.project import Project, Remembered
from warmops.proposal import Proposal
from warmops.roll_plan import RollFacts, Seen, Step, missing, next_row, undo_steps
from warmops.roll_record import Record, forget_record, write_record
from warmops.route import Route, set_order, show_route
from warmops.starts import START_SECONDS
from warmops.waiting import Progress, describe_engine

LOOK_SECONDS = 0.5
GATEWAY_SECONDS = 60.0
# A step that has to be done again and again does not take effect.
_TRIES = 3


class RollFailed(Exception):
    """A step could not be done; `str(error)` is one sentence."""


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """A step that was carried out, or begun; times in unix seconds."""

    name: str
    begun_at: float
    ended_at: float
    detail: str


@dataclass(kw_only=True)
class Roll:
    """One run of one roll."""

    project: Project
    proposal: Proposal
    settings: Remembered
    record: Record
    progress: Progress
    steps: list[StepTime] = field(default_factory=list)
    drained: frozenset[str] = frozenset()

    def go_on(self) -> None:
        """Step by step until the table says that the roll is over. Raises RollFailed."""
        tries: Counter[Step] = Counter()
        while True:
            facts = self.observe()
            row = next_row(facts)
            if row is None:
                break
            tries[row.step] += 1
            if tries[row.step] > _TRIES:
                raise RollFailed(f"`{row.step}` was done {_TRIES} times and did not take effect")
            wrong = missing(row, facts)
            if wrong is not None:
                raise RollFailed(wrong)
            self._carry_out(row.step, facts)
        if facts.engine is not Seen.PROVED:
            raise RollFailed(f"neither {ENGINE} nor {SURGE} is there to go on with")
        self.forget()

    def undo(self) -> None:
        """Leave the old engine serving as if there had been no roll. Raises RollFailed."""
        self.drained = frozenset()
        facts = self.observe()
        for step in undo_steps(facts):
            self._carry_out(step, facts)
        self.forget()

    def forget(self) -> None:
        """Remove the record and the proposal: what is in force is all that counts from here on."""
        forget_record(self.project.folder)
        self.proposal.discard()

    def observe(self) -> RollFacts:
        """What is so now. Raises RollFailed while the gateway does not tell."""
        route = self._route()
        there = {found.service: found for found in self.project.containers()}
        return RollFacts(
            engine=self._seen(there.get(ENGINE), route),
            surge=self._seen(there.get(SURGE), route),
            first=SURGE if route.order[:1] == (SURGE,) else ENGINE,
            engine_ready=route.engine(ENGINE).ready,
            surge_ready=route.engine(SURGE).ready,
            cache=self._cache_state(there.get(WEIGHT_CACHE)),
            drained=self.drained,
            standby=self.record.standby,
        )

    def _carry_out(self, step: Step, facts: RollFacts) -> None:
        self._note(step=step, seen=_as_seen(facts))
        begun_at = time.time()
        self.progress.show(step)
        actions: Mapping[Step, Callable[[], str]] = {
            Step.START: self._start,
            Step.PROVE_SURGE: lambda: self._prove(SURGE),
            Step.TO_SURGE: lambda: self._prefer(SURGE),
            Step.DRAIN_ENGINE: lambda: self._drain(ENGINE, other=SURGE),
            Step.REPLACE: self._replace,
            Step.PROVE_ENGINE: lambda: self._prove(ENGINE),
            Step.TO_ENGINE: lambda: self._prefer(ENGINE),
            Step.DRAIN_SURGE: lambda: self._drain(SURGE, other=ENGINE),
            Step.REMOVE_SURGE: self._put_surge_away,
        }
        detail = "failed"
        try:
            detail = actions[step]()
        except DockerError as error:
            raise RollFailed(str(error.problems[0].problem)) from error
        finally:
            ended_at = time.time()
            self.steps.append(StepTime(name=step, begun_at=begun_at, ended_at=ended_at, detail=detail))
        say(f"{step}: {detail} ({ended_at - begun_at:.1f} s)")

    # The steps. Each may find its work done already, and then does nothing; each gives a detail for a person.

    def _start(self) -> str:
        route = self._route()
        if route.order[:1] != (ENGINE,):
            self._prefer(ENGINE)
        if not self.record.answers:
            self._note(answers=(self._ask(self._engine(ENGINE), self._served_until_now()),))
        if self._seen(self.project.container(SURGE), route) in (Seen.OLD, Seen.ENDED):
            # A standby with the old settings, or what is left of a start that failed.
            self._await_idle(SURGE, other=ENGINE)
            self.project.remove(SURGE)
        self.proposal.compose.run("up", "--detach", "--no-deps", SURGE)
        return self._await_ready(SURGE, gives_up_without_weights=True)

    def _prove(self, service: str) -> str:
        """A hit by the engine's log, and the greedy answer of the engine that was there before."""
        if service == ENGINE:
            self._await_ready(ENGINE, gives_up_without_weights=False)
        container = self._engine(service)
        evidence = classify_start(self.project.log(container), ranks=self.settings.ranks)
        if evidence.outcome != "hit":
            raise RollFailed(f"{service} did not map the weights: {evidence.outcome}: {evidence.reason}")
        self._compare_answers(service, container)
        self.record = self.record.with_proof(container)
        self._note()
        return f"hit, {evidence.tensors} tensors; the greedy answer is the same"

    def _prefer(self, service: str) -> str:
        other = next(name for name in ENGINES if name != service)
        route = set_order(self.project, service, other)
        if route is None:
            raise RollFailed("the gateway did not take the new order")
        return f"order {', '.join(route.order)}"

    def _drain(self, service: str, *, other: str) -> str:
        most = self._await_idle(service, other=other)
        self.drained |= {service}
        return f"{most} requests were running" if most else "nothing was running"

    def _await_idle(self, service: str, *, other: str) -> int:
        """Until an engine works on nothing, or the time for that is over; the most that it worked on."""
        deadline = time.monotonic() + self.record.drain_seconds
        most = 0
        while (left := self._route()).engine(service).in_flight:
            running = left.engine(service).in_flight
            most = max(most, running)
            if not left.engine(other).ready:
                raise RollFailed(f"{other} is not ready any more")
            if time.monotonic() > deadline:
                seconds = self.record.drain_seconds
                warn(f"{running} requests still run on {service} after {seconds} s and will be cut")
                self._note(cut=self.record.cut + running)
                break
            self.progress.show(f"{service} finishes {running} requests")
            time.sleep(LOOK_SECONDS / 2)
        return most

    def _replace(self) -> str:
        self.proposal.put_in_force()
        self.project.remove(ENGINE)
        self.project.compose.run("up", "--detach", "--no-deps", ENGINE)
        return "a new container with the new settings"

    def _put_surge_away(self) -> str:
        self.project.remove(SURGE)
        if not self._standby_in_force():
            return "removed"
        self.project.compose.run("up", "--detach", "--no-deps", SURGE)
        return "stands by"

    # What the steps and the facts are made of.

    def _seen(self, container: Container | None, route: Route) -> Seen:
        if container is None:
            return Seen.NONE
        if not container.running:
            return Seen.ENDED
        if self.record.is_old(container):
            return Seen.OLD
        log = self.project.log(container)
        evidence = classify_start(log, ranks=self.settings.ranks)
        if evidence.ready and route.engine(container.service).ready:
            return Seen.PROVED if self.record.is_proved(container) else Seen.READY
        return Seen.STARTING if start_failure(log) is None else Seen.ENDED

    def _engine(self, service: str) -> Container:
        container = self.project.container(service)
        if container is None:
            raise RollFailed(f"{service} is gone")
        return container

    def _route(self) -> Route:
        """The gateway's account; one that is being restarted is waited for."""
        deadline = time.monotonic() + GATEWAY_SECONDS
        while (route := show_route(self.project)) is None:
            if time.monotonic() > deadline:
                raise RollFailed(f"the gateway has not told for {GATEWAY_SECONDS:.0f} s who serves")
            self.progress.show("waiting for the gateway")
            time.sleep(LOOK_SECONDS)
        return route

    def _await_ready(self, service: str, *, gives_up_without_weights: bool) -> str:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            container = self._engine(service)
            if not container.running:
                raise RollFailed(f"{service} ended with code {container.exit_code}")
            log = self.project.log(container)
            evidence = classify_start(log, ranks=self.settings.ranks)
            if evidence.ready and self._route().engine(service).ready:
                return "ready"
            wrong = start_failure(log)
            if wrong is not None:
                raise RollFailed(f"{service}: {wrong}")
            if gives_up_without_weights and "weights" not in evidence.moments:
                self._require_held()
            self.progress.show(f"{service}: {describe_engine(evidence)}")
            time.sleep(LOOK_SECONDS)
        raise RollFailed(f"{service} was not ready within {START_SECONDS:.0f} s")

    def _require_held(self) -> None:
        state = self._cache_state(self.project.container(WEIGHT_CACHE))
        if state != "held":
            raise RollFailed(f"the weight cache holds no weights now (it is {state})")

    def _cache_state(self, cache: Container | None) -> str:
        if cache is None or not cache.running:
            return "not there" if cache is None else cache.state
        status = self.project.status_of(cache)
        return "not answering" if status is None else str(status.get("state"))

    def _compare_answers(self, service: str, container: Container) -> None:
        def again() -> str:
            other = SURGE if service == ENGINE else ENGINE
            model = self.settings.served_model if other == SURGE else self._served_until_now()
            return self._ask(self._engine(other), model)

        told = same_answer(
            self.record.answers, ask=lambda: self._ask(container, self.settings.served_model), again=again
        )
        if not told.same:
            raise RollFailed(f"{service} answers {told.answer!r}, and before it was {told.expected!r}")
        self._note(answers=told.known)

    def _ask(self, container: Container, model: str) -> str:
        try:
            return ask_engine(self.project, container, model)
        except AnswerError as error:
            raise RollFailed(f"{container.service} gave no answer: {error}") from error

    def _served_until_now(self) -> str:
        return self.project.remembered().served_model

    def _standby_in_force(self) -> bool:
        return self.project.remembered().standby

    def _note(self, **changes: object) -> None:
        self.record = replace(self.record, **changes)  # type: ignore[arg-type]
        write_record(self.project.folder, self.record)


def _as_seen(facts: RollFacts) -> dict[str, str]:
    return {
        ENGINE: facts.engine,
        SURGE: facts.surge,
        "first": facts.first,
        WEIGHT_CACHE: facts.cache,
    }
