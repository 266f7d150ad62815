"""The state table of a roll: every position has one next step, and every walk ends, killed wherever it is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import pytest

from warmops.changes import ENGINE, SURGE
from warmops.roll_plan import (
    ROLL,
    RollFacts,
    Seen,
    Step,
    can_undo,
    is_lost,
    is_over,
    missing,
    next_row,
    undo_steps,
)

NONE, ENDED, OLD, STARTING, READY, PROVED = Seen
BEGIN = RollFacts(engine=OLD, surge=NONE, first=ENGINE)
WHOLE = tuple(Step)


def step(facts: RollFacts) -> Step | str:
    row = next_row(facts)
    return row.step if row is not None else "lost" if is_lost(facts) else "over"


@pytest.mark.parametrize(
    ("engine", "surge", "first", "expected"),
    [
        (OLD, NONE, ENGINE, Step.START),
        (OLD, OLD, ENGINE, Step.START),  # a standby, or what an earlier roll left
        (OLD, STARTING, ENGINE, Step.START),
        (OLD, STARTING, SURGE, Step.START),  # it died after requests were sent to it
        (OLD, NONE, SURGE, Step.START),
        (OLD, ENDED, ENGINE, Step.START),
        (OLD, READY, ENGINE, Step.PROVE_SURGE),
        (OLD, READY, SURGE, Step.PROVE_SURGE),
        (OLD, PROVED, ENGINE, Step.TO_SURGE),
        (OLD, PROVED, SURGE, Step.DRAIN_ENGINE),
        (NONE, PROVED, SURGE, Step.REPLACE),
        (ENDED, PROVED, SURGE, Step.REPLACE),  # its start failed: the next run makes another one
        (NONE, PROVED, ENGINE, Step.TO_SURGE),
        (NONE, READY, ENGINE, Step.PROVE_SURGE),
        (STARTING, PROVED, SURGE, Step.PROVE_ENGINE),
        (STARTING, NONE, SURGE, Step.PROVE_ENGINE),  # the second engine is gone: nothing but waiting helps
        (READY, PROVED, SURGE, Step.PROVE_ENGINE),
        (READY, OLD, ENGINE, Step.PROVE_ENGINE),
        (PROVED, PROVED, SURGE, Step.TO_ENGINE),
        (PROVED, NONE, SURGE, Step.TO_ENGINE),
        (PROVED, PROVED, ENGINE, Step.DRAIN_SURGE),
        (PROVED, OLD, ENGINE, Step.DRAIN_SURGE),
        (PROVED, ENDED, ENGINE, Step.DRAIN_SURGE),
        (PROVED, NONE, ENGINE, "over"),
        (NONE, NONE, ENGINE, "lost"),
        (NONE, OLD, SURGE, "lost"),
        (NONE, STARTING, SURGE, "lost"),
        (ENDED, ENDED, ENGINE, "lost"),
    ],
)
def test_where_a_roll_stands(engine: Seen, surge: Seen, first: str, expected: Step | str) -> None:
    assert step(RollFacts(engine=engine, surge=surge, first=first)) == expected


@pytest.mark.parametrize(
    ("surge", "drained", "expected"),
    [
        (OLD, frozenset(), Step.DRAIN_SURGE),
        (OLD, frozenset({SURGE}), Step.REMOVE_SURGE),
        (NONE, frozenset({SURGE}), Step.REMOVE_SURGE),
        (STARTING, frozenset(), "over"),
        (PROVED, frozenset(), "over"),
    ],
)
def test_a_standby_stays(surge: Seen, drained: frozenset[str], expected: Step | str) -> None:
    assert step(replace(BEGIN, engine=PROVED, surge=surge, drained=drained, standby=True)) == expected


def test_every_position_has_a_next_step() -> None:
    drains = (frozenset(), frozenset({ENGINE}), frozenset({SURGE}), frozenset({ENGINE, SURGE}))
    for engine, surge, first, drained, standby in product(Seen, Seen, (ENGINE, SURGE), drains, (True, False)):
        facts = RollFacts(engine=engine, surge=surge, first=first, drained=drained, standby=standby)
        assert step(facts) in (*WHOLE, "over", "lost")
        assert not (is_over(facts) and is_lost(facts))


def test_the_table_has_each_step_once_and_in_order() -> None:
    assert tuple(row.step for row in ROLL) == WHOLE


@pytest.mark.parametrize(
    ("at", "facts", "words"),
    [
        (Step.START, {"cache": "loading"}, "the weight cache holds no weights now (it is loading)"),
        (Step.START, {"engine_ready": False}, "vllm is not ready"),
        (Step.TO_SURGE, {"surge_ready": False}, "vllm-surge is not ready"),
        (Step.DRAIN_ENGINE, {"surge_ready": False}, "vllm-surge is not ready"),
        (Step.REPLACE, {"surge_ready": False}, "vllm-surge is not ready"),
        (Step.REPLACE, {"cache": "not there"}, "(it is not there)"),
        (Step.TO_ENGINE, {"engine_ready": False}, "vllm is not ready"),
        (Step.DRAIN_SURGE, {"engine_ready": False}, "vllm is not ready"),
        (Step.REMOVE_SURGE, {"engine_ready": False}, "vllm is not ready"),
        # The old engine may die while it is drained: what was to be drained is gone.
        (Step.DRAIN_ENGINE, {"engine_ready": False}, None),
        (Step.REPLACE, {"engine_ready": False}, None),
        # Its weights are mapped; what the weight cache does now is no matter.
        (Step.TO_SURGE, {"cache": "loading"}, None),
        (Step.REMOVE_SURGE, {"cache": "loading"}, None),
    ],
)
def test_what_a_step_needs(at: Step, facts: dict[str, object], words: str | None) -> None:
    (row,) = [row for row in ROLL if row.step is at]
    found = missing(row, replace(BEGIN, **facts))  # type: ignore[arg-type]
    assert found is None if words is None else words in str(found)


@pytest.mark.parametrize(
    ("facts", "possible", "steps"),
    [
        (BEGIN, True, ()),
        (replace(BEGIN, surge=STARTING), True, (Step.DRAIN_SURGE, Step.REMOVE_SURGE)),
        (replace(BEGIN, surge=ENDED), True, (Step.DRAIN_SURGE, Step.REMOVE_SURGE)),
        (replace(BEGIN, surge=PROVED, first=SURGE), True, WHOLE[-3:]),
        (replace(BEGIN, first=SURGE), True, (Step.TO_ENGINE,)),
        # Its own standby is left as it is; one that was replaced is put back.
        (replace(BEGIN, surge=OLD, standby=True), True, ()),
        (replace(BEGIN, surge=NONE, standby=True), True, (Step.DRAIN_SURGE, Step.REMOVE_SURGE)),
        # An old engine that serves no more is nothing to go back to while the other one serves.
        (replace(BEGIN, surge=PROVED, first=SURGE, engine_ready=False), False, None),
        (replace(BEGIN, surge=STARTING, engine_ready=False, surge_ready=False), True, None),
        (replace(BEGIN, engine=NONE, surge=PROVED), False, None),
        (replace(BEGIN, engine=STARTING, surge=PROVED), False, None),
        (replace(BEGIN, engine=PROVED, surge=PROVED), False, None),
    ],
)
def test_undoing(facts: RollFacts, possible: bool, steps: tuple[Step, ...] | None) -> None:
    assert can_undo(facts) is possible
    if steps is not None:
        assert undo_steps(facts) == steps


@dataclass
class World:
    """What the steps do to a stack, without containers. `forget` is what a killed run knows no more."""

    facts: RollFacts

    def do(self, what: Step) -> None:
        change: dict[Step, dict[str, object]] = {
            Step.START: {"surge": READY, "surge_ready": True, "first": ENGINE},
            Step.PROVE_SURGE: {"surge": PROVED},
            Step.TO_SURGE: {"first": SURGE},
            Step.DRAIN_ENGINE: {"drained": self.facts.drained | {ENGINE}},
            Step.REPLACE: {"engine": STARTING, "engine_ready": False},
            Step.PROVE_ENGINE: {"engine": PROVED, "engine_ready": True},
            Step.TO_ENGINE: {"first": ENGINE},
            Step.DRAIN_SURGE: {"drained": self.facts.drained | {SURGE}},
            Step.REMOVE_SURGE: {"surge": STARTING if self.facts.standby else NONE},
        }
        self.facts = replace(self.facts, **change[what])  # type: ignore[arg-type]

    def forget(self) -> None:
        self.facts = replace(self.facts, drained=frozenset())

    def run(self, *, at_most: int = 20) -> list[Step]:
        done: list[Step] = []
        while (row := next_row(self.facts)) is not None:
            assert missing(row, self.facts) is None
            self.do(row.step)
            done.append(row.step)
            assert len(done) <= at_most, done
        return done


def test_a_roll_that_nothing_disturbs() -> None:
    world = World(BEGIN)
    assert world.run() == list(WHOLE)
    assert is_over(world.facts)


def test_a_roll_with_a_standby_keeps_it() -> None:
    world = World(replace(BEGIN, surge=OLD, standby=True))
    assert world.run() == list(WHOLE[:-2])
    assert is_over(world.facts)


@pytest.mark.parametrize("killed_after", range(len(WHOLE)))
def test_a_roll_that_was_killed_is_finished(killed_after: int) -> None:
    world = World(BEGIN)
    for _ in range(killed_after):
        row = next_row(world.facts)
        assert row is not None
        world.do(row.step)
    world.forget()
    done = world.run()
    assert is_over(world.facts)
    assert set(WHOLE[killed_after:]) <= set(done) | {WHOLE[killed_after - 1]}


@pytest.mark.parametrize("killed_after", range(len(WHOLE)))
def test_a_roll_that_was_killed_while_the_engine_is_old_can_be_undone(killed_after: int) -> None:
    world = World(BEGIN)
    for _ in range(killed_after):
        row = next_row(world.facts)
        assert row is not None
        world.do(row.step)
    world.forget()
    assert can_undo(world.facts) is (killed_after < WHOLE.index(Step.REPLACE) + 1)
    if can_undo(world.facts):
        for one in undo_steps(world.facts):
            world.do(one)
        assert (world.facts.engine, world.facts.surge, world.facts.first) == (OLD, NONE, ENGINE)
