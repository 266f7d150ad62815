"""Beginning a roll, taking up one that did not end, and what is left when one fails.

In: a project, a proposal that changes its engine. Out: a `Rolled` for people and programs. `up` and `roll`
share it; which of them was typed is no matter here.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from warmops.changes import ENGINE, ENGINES, SURGE, SURGE_PROFILE, WEIGHT_CACHE, Changes
from warmops.console import failure, heading, say
from warmops.hostfacts import gpu_facts, memory_kib
from warmops.project import ROOT, Project
from warmops.proposal import Proposal
from warmops.roll_plan import Seen, can_undo, is_lost
from warmops.roll_record import Record, forget_record, read_record, write_record
from warmops.roll_steps import Roll, RollFailed, StepTime
from warmops.route import GATEWAY, show_route
from warmops.running import joined_hashes
from warmops.units import mebibytes
from warmops.waiting import Progress
from warmplan import GpuFacts, Plan

_NEXT = "next"


@dataclass(frozen=True, kw_only=True)
class Rolled:
    """How a roll ended. `outcome` is rolled, undone or unfinished; `error` a sentence unless it is rolled."""

    outcome: str
    steps: tuple[StepTime, ...]
    cut: int = 0
    error: str | None = None
    hint: str | None = None

    @property
    def passed(self) -> bool:
        return self.error is None


class CannotRoll(Exception):
    """A roll cannot begin; nothing was touched. `str(error)` is one sentence."""


def changes_engine_alone(changes: Changes) -> bool:
    """Whether the first engine is to be made anew on weights that stay."""
    engine, cache = changes.of(ENGINE), changes.of(WEIGHT_CACHE)
    return engine is not None and engine.action == "recreate" and cache is not None and cache.action == "keep"


def require_roll(project: Project, plan: Plan) -> None:
    """Look whether a roll can begin. Raises CannotRoll."""
    if plan.unit is not None:
        raise CannotRoll("a roll needs the weight cache in a container, and here the host runs it")
    if plan.budget.second == "none":
        raise CannotRoll("engine.roll is false, or a second engine does not fit beside the first")
    there = {container.service: container for container in project.containers()}
    cache = there.get(WEIGHT_CACHE)
    state = str((project.status_of(cache) or {}).get("state", "not answering"))
    if state != "held":
        raise CannotRoll(f"the weight cache holds no weights now (it is {state})")
    route = show_route(project)
    if route is None:
        raise CannotRoll("the gateway does not tell who serves; `make up` renews it")
    if not route.engine(ENGINE).ready:
        raise CannotRoll(f"{ENGINE} is not ready, so there is nothing to keep up")
    if SURGE not in there:
        problem = room_problem(
            plan,
            available_bytes=memory_kib("MemAvailable") * 1024,
            gpus=gpu_facts() if plan.engine.gpus else (),
        )
        if problem is not None:
            raise CannotRoll(problem)


def room_problem(plan: Plan, *, available_bytes: int, gpus: Sequence[GpuFacts]) -> str | None:
    """Why a second engine has no room now, on a host with so much memory and these GPUs; None when it has."""
    needed = plan.budget.surge_bytes
    if plan.engine.gpus is None:
        free = {"the host": available_bytes}
    else:
        chosen = plan.engine.gpus.devices
        used = [gpu for gpu in gpus if gpu.uuid in chosen] or gpus[: plan.engine.gpus.count]
        free = {f"GPU {gpu.uuid}": gpu.free_bytes for gpu in used}
    full = [f"{name} has {mebibytes(size)} free" for name, size in free.items() if size < needed]
    return f"a second engine needs {mebibytes(needed)} and {', '.join(full)}" if full else None


def begin_roll(proposal: Proposal, *, drain_seconds: int, standby: bool) -> Rolled:
    """Roll the project to the proposal, which `require_roll` has allowed."""
    project = proposal.project
    cache = project.container(WEIGHT_CACHE)
    compose = proposal.compose.with_profiles(SURGE_PROFILE)
    asked = [compose.config_hashes(), *([joined_hashes(compose, cache.id)] if cache is not None else [])]
    record = Record(
        begun_at=time.time(),
        old={found.service: found.id for found in project.containers() if found.service in ENGINES},
        hashes={name: tuple(dict.fromkeys(found[name] for found in asked)) for name in ENGINES},
        standby=standby,
        drain_seconds=drain_seconds,
    )
    moved = proposal.move(project.folder / _NEXT)
    write_record(project.folder, record)
    return _go_on(moved, record)


def take_up(project: Project, wish: Proposal | None = None) -> Rolled | None:
    """A roll that did not end is finished; or undone, while the old engine is there and `wish` is another.

    None when there is none to finish: no record, or what a roll goes on with is gone. `up`, which has no
    `wish` here, then makes everything anew.
    """
    record = read_record(project.folder)
    if record is None:
        return None
    proposal = Proposal(project=project, folder=project.folder / _NEXT)
    if proposal.settings is None:
        forget_record(project.folder)
        return None
    with Progress() as progress:
        roll = _roll(proposal, record, progress)
        try:
            if wish is None and not _runs(project, GATEWAY, WEIGHT_CACHE):
                say("a roll did not end, and what it needs does not run: beginning anew")
                roll.forget()
                return None
            facts = roll.observe()
            if is_lost(facts):
                say("a roll did not end, and no engine is left to go on with: beginning anew")
                roll.forget()
                return None
            if facts.engine is not Seen.OLD or (wish is not None and wish.asks_the_same(proposal)):
                heading(f"a roll did not end at `{record.step}`: going on with it")
            elif can_undo(facts):
                heading(f"a roll did not end at `{record.step}`: undoing it")
                roll.undo()
                return None
        except RollFailed as failed:
            return _unfinished(roll, str(failed))
    return _go_on(proposal, record)


def raise_unless_passed(rolled: Rolled | None) -> None:
    """The error of a roll for a person; none for none. Raises UserError (exit code 1)."""
    if rolled is not None and rolled.error is not None:
        raise failure(rolled.error, rolled.hint, exit_code=1)


def as_json(rolled: Rolled, project: Project) -> dict[str, Any]:
    """The outcome for programs; times in unix seconds."""
    return {
        "project": project.name,
        "passed": rolled.passed,
        "outcome": rolled.outcome,
        "error": rolled.error,
        "hint": rolled.hint,
        "cut_streams": rolled.cut,
        "steps": [asdict(step) for step in rolled.steps],
    }


def _runs(project: Project, *services: str) -> bool:
    running = {container.service for container in project.containers() if container.running}
    return running.issuperset(services)


def _go_on(proposal: Proposal, record: Record) -> Rolled:
    with Progress() as progress:
        roll = _roll(proposal, record, progress)
        try:
            roll.go_on()
        except RollFailed as failed:
            return _after_failure(roll, str(failed))
        except KeyboardInterrupt:
            say(f"stopped; `make roll PROJECT={proposal.project.name}` goes on from here or undoes it")
            raise
    return Rolled(outcome="rolled", steps=tuple(roll.steps), cut=roll.record.cut)


def _after_failure(roll: Roll, sentence: str) -> Rolled:
    """Undo while the old engine is there; after that leave the second one serving."""
    project = roll.project
    log = project.save_log(SURGE)
    where = f"the log of {SURGE}: {log.relative_to(ROOT)}" if log is not None else None
    try:
        if can_undo(roll.observe()):
            roll.undo()
            error = f"not rolled: {sentence}; {ENGINE} serves on as before"
            return Rolled(outcome="undone", steps=tuple(roll.steps), error=error, hint=where)
    except RollFailed as failed:
        sentence = f"{sentence}; and then: {failed}"
    return _unfinished(roll, sentence)


def _unfinished(roll: Roll, sentence: str) -> Rolled:
    route = show_route(roll.project)
    serving = route.serving if route is not None else None
    who = f"{serving} serves" if serving is not None else "no engine serves"
    again = f"make roll PROJECT={roll.project.name} goes on from here once that is mended"
    error = f"the roll is not finished: {sentence}; {who}"
    return Rolled(outcome="unfinished", steps=tuple(roll.steps), cut=roll.record.cut, error=error, hint=again)


def _roll(proposal: Proposal, record: Record, progress: Progress) -> Roll:
    settings = proposal.settings
    assert settings is not None, "the proposal was written with its settings"
    return Roll(
        project=proposal.project, proposal=proposal, settings=settings, record=record, progress=progress
    )
