"""The supervisor's state machine, tested as a table."""

from itertools import product

import pytest

from warmstack_supervisor.states import (
    IMPOSSIBLE,
    TRANSITIONS,
    Action,
    Event,
    ImpossibleTransitionError,
    State,
    step,
)


def test_every_pair_is_decided_once() -> None:
    assert set(TRANSITIONS) | IMPOSSIBLE == set(product(State, Event))
    assert not set(TRANSITIONS) & IMPOSSIBLE


@pytest.mark.parametrize(("state", "event"), sorted(IMPOSSIBLE))
def test_impossible_pairs_are_errors(state: State, event: Event) -> None:
    with pytest.raises(ImpossibleTransitionError, match=f"{event} in state {state}"):
        step(state, event)


@pytest.mark.parametrize("state", State)
def test_stop_is_possible_everywhere(state: State) -> None:
    assert step(state, Event.STOP)[0] is State.STOPPING


@pytest.mark.parametrize(
    ("events", "states"),
    [
        ("room confirmed", "loading held"),
        ("no_room no_room room confirmed", "waiting waiting loading held"),
        ("never_fits stop", "failed stopping"),
        ("room mismatch", "loading failed"),
        ("room child_exited room exhausted", "loading waiting loading failed"),
        ("room confirmed child_exited no_room room confirmed", "loading held waiting waiting loading held"),
        ("room confirmed lost room confirmed stop", "loading held waiting loading held stopping"),
    ],
)
def test_histories(events: str, states: str) -> None:
    state, seen = State.STARTING, []
    for event in events.split():
        state, _ = step(state, Event(event))
        seen.append(state.value)
    assert seen == states.split()


def test_a_child_is_there_exactly_in_loading_and_held() -> None:
    """Whatever leads out of these two ends the child or was its end; only loading starts one."""
    for (state, event), (after, action) in TRANSITIONS.items():
        had_child = state in (State.LOADING, State.HELD)
        has_child = after in (State.LOADING, State.HELD)
        starts = action is Action.START_CHILD
        ends = action in (Action.REMOVE_CHILD, Action.REMOVE_CHILD_AND_RETRY_LATER)
        ended_itself = event in (Event.CHILD_EXITED, Event.EXHAUSTED)
        assert starts == (has_child and not had_child)
        assert (ends or ended_itself) == (had_child and not has_child)
