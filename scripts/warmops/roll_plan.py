"""A roll as a state table: what is seen decides what is done next, whoever began the roll.

In: facts about both engines, the gateway's order and the weight cache. Out: the row of the next step, or the
steps that undo. It refuses to know how a fact is observed and how a step is carried out. Nothing in it
depends on what was done before: a roll that was killed is taken up by looking.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from warmops.changes import ENGINE, SURGE


class Step(StrEnum):
    """What is done, in the order of a roll that nothing disturbs."""

    START = f"start {SURGE}"
    PROVE_SURGE = f"prove {SURGE}"
    TO_SURGE = f"send requests to {SURGE}"
    DRAIN_ENGINE = f"drain {ENGINE}"
    REPLACE = f"replace {ENGINE}"
    PROVE_ENGINE = f"prove {ENGINE}"
    TO_ENGINE = f"send requests to {ENGINE}"
    DRAIN_SURGE = f"drain {SURGE}"
    REMOVE_SURGE = f"put {SURGE} away"


class Seen(StrEnum):
    """An engine as a roll sees it."""

    NONE = "none"
    """Not there."""
    ENDED = "ended"
    """There, but it does not run, or its start failed."""
    OLD = "old"
    """From before the roll, or of other settings."""
    STARTING = "starting"
    """New, and not ready."""
    READY = "ready"
    """New, and the gateway sees it ready."""
    PROVED = "proved"
    """Ready, a hit by evidence, and it gave the right answer."""


@dataclass(frozen=True, kw_only=True)
class RollFacts:
    """What is so now. `first` is the engine that the gateway prefers, `cache` the weight cache's state.

    `drained` holds the engines that this run has waited for: what still runs there may be cut.
    `standby`: a second engine stays when the roll is over.
    """

    engine: Seen
    surge: Seen
    first: str
    engine_ready: bool = True
    surge_ready: bool = True
    cache: str = "held"
    drained: frozenset[str] = frozenset()
    standby: bool = False


@dataclass(frozen=True, kw_only=True)
class Need:
    """What must be so before a step; `otherwise` says what is wrong when it is not."""

    holds: Callable[[RollFacts], bool]
    otherwise: Callable[[RollFacts], str]


HELD = Need(
    holds=lambda facts: facts.cache == "held",
    otherwise=lambda facts: f"the weight cache holds no weights now (it is {facts.cache})",
)
ENGINE_SERVES = Need(holds=lambda facts: facts.engine_ready, otherwise=lambda facts: f"{ENGINE} is not ready")
SURGE_SERVES = Need(holds=lambda facts: facts.surge_ready, otherwise=lambda facts: f"{SURGE} is not ready")

_NEW = frozenset({Seen.STARTING, Seen.READY, Seen.PROVED})
_GONE = frozenset({Seen.NONE, Seen.ENDED})
_OLD_OR_GONE = _GONE | {Seen.OLD}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A step, the facts on which it comes next, what must be so besides, and what it does.

    `drains`: the step is done once in a run, for this engine. While vllm is old a step that fails is undone;
    after that the new settings serve on vllm-surge, and the roll waits to be finished.
    """

    step: Step
    does: str
    engine: frozenset[Seen]
    surge: frozenset[Seen] = frozenset(Seen)
    first: frozenset[str] = frozenset({ENGINE, SURGE})
    drains: str | None = None
    needs: tuple[Need, ...] = ()


# The first row that fits is the next step.
ROLL = (
    Row(
        step=Step.START,
        does="starts the second engine with the new settings on the weights that are held",
        engine=frozenset({Seen.OLD}),
        surge=_OLD_OR_GONE | {Seen.STARTING},
        needs=(HELD, ENGINE_SERVES),
    ),
    Row(
        step=Step.PROVE_SURGE,
        does="wants evidence of a hit, and the right greedy answer from the second engine itself",
        engine=_OLD_OR_GONE,
        surge=frozenset({Seen.READY}),
    ),
    Row(
        step=Step.TO_SURGE,
        does="tells the gateway to prefer the second engine",
        engine=_OLD_OR_GONE,
        first=frozenset({ENGINE}),
        needs=(SURGE_SERVES,),
    ),
    Row(
        step=Step.DRAIN_ENGINE,
        does="waits until the first engine has answered what it is working on",
        engine=frozenset({Seen.OLD}),
        drains=ENGINE,
        needs=(SURGE_SERVES,),
    ),
    Row(
        step=Step.REPLACE,
        does="puts the new settings in force and makes a new container of the first engine",
        engine=_OLD_OR_GONE,
        needs=(HELD, SURGE_SERVES),
    ),
    Row(
        step=Step.PROVE_ENGINE,
        does="waits until the new first engine is ready, then wants the same of it",
        engine=frozenset({Seen.STARTING, Seen.READY}),
    ),
    Row(
        step=Step.TO_ENGINE,
        does="tells the gateway to prefer the first engine again",
        engine=frozenset({Seen.PROVED}),
        first=frozenset({SURGE}),
        needs=(ENGINE_SERVES,),
    ),
    Row(
        step=Step.DRAIN_SURGE,
        does="waits until the second engine has answered what it is working on",
        engine=frozenset({Seen.PROVED}),
        drains=SURGE,
        needs=(ENGINE_SERVES,),
    ),
    Row(
        step=Step.REMOVE_SURGE,
        does="removes the second engine, or leaves it as the standby that the settings want",
        engine=frozenset({Seen.PROVED}),
        needs=(ENGINE_SERVES,),
    ),
)


def is_over(facts: RollFacts) -> bool:
    """Whether nothing is left to do."""
    away = facts.surge in _NEW if facts.standby else facts.surge is Seen.NONE
    return facts.engine is Seen.PROVED and facts.first == ENGINE and away


def is_lost(facts: RollFacts) -> bool:
    """Whether no engine is there that a roll could go on with."""
    return facts.engine in _GONE and facts.surge not in (Seen.READY, Seen.PROVED)


def next_row(facts: RollFacts) -> Row | None:
    """The row of the next step; None when the roll is over, or lost."""
    if is_over(facts) or is_lost(facts):
        return None
    return next(row for row in ROLL if _fits(row, facts))


def missing(row: Row, facts: RollFacts) -> str | None:
    """Why the step cannot be done now, in a sentence; None when it can."""
    return next((need.otherwise(facts) for need in row.needs if not need.holds(facts)), None)


def can_undo(facts: RollFacts) -> bool:
    """Whether the old engine is there to go back to, and doing so takes no engine from anyone."""
    return facts.engine is Seen.OLD and (facts.engine_ready or not facts.surge_ready)


def undo_steps(facts: RollFacts) -> tuple[Step, ...]:
    """What leaves the old engine serving as if there had been no roll: a roll's last steps."""
    untouched = facts.surge is (Seen.OLD if facts.standby else Seen.NONE)
    steps: list[Step] = []
    if facts.first != ENGINE:
        steps.append(Step.TO_ENGINE)
    if not untouched:
        steps += [Step.DRAIN_SURGE, Step.REMOVE_SURGE]
    return tuple(steps)


def _fits(row: Row, facts: RollFacts) -> bool:
    return (
        facts.engine in row.engine
        and facts.surge in row.surge
        and facts.first in row.first
        and row.drains not in facts.drained
    )
