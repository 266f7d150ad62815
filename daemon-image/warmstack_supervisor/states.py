"""The state machine of the weight cache, as a table.

In: a state and an event. Out: the next state and what to do. Refuses to know: processes, time, memory.
Every pair is in `TRANSITIONS` or in `IMPOSSIBLE`; a test says so.
"""

from enum import StrEnum


class State(StrEnum):
    STARTING = "starting"  # nothing was tried yet
    LOADING = "loading"  # a child loads
    HELD = "held"  # a child holds the weights, and they were verified
    WAITING = "waiting"  # for the next try: back-off, or no room for a copy
    FAILED = "failed"  # gave up; stays to say why, and to lend the IPC namespace
    STOPPING = "stopping"


class Event(StrEnum):
    ROOM = "room"  # it is time to load, and the memory can hold a copy
    NO_ROOM = "no_room"  # it is time, and the memory can't hold a copy now
    NEVER_FITS = "never_fits"  # the memory is too small at all
    CONFIRMED = "confirmed"  # all ranks say how much they hold, and the digest is right
    MISMATCH = "mismatch"  # the model's files are not those the plan was made for
    CHILD_EXITED = "child_exited"
    EXHAUSTED = "exhausted"  # a child exited, and that was one failed load too many
    LOST = "lost"  # the child lives, the weights do not
    STOP = "stop"


class Action(StrEnum):
    NOTHING = "nothing"
    START_CHILD = "start_child"
    REMOVE_CHILD = "remove_child"
    LOOK_LATER = "look_later"  # at the memory, again
    RETRY_LATER = "retry_later"  # after a back-off
    REMOVE_CHILD_AND_RETRY_LATER = "remove_child_and_retry_later"


TRANSITIONS: dict[tuple[State, Event], tuple[State, Action]] = {
    (State.STARTING, Event.ROOM): (State.LOADING, Action.START_CHILD),
    (State.STARTING, Event.NO_ROOM): (State.WAITING, Action.LOOK_LATER),
    (State.STARTING, Event.NEVER_FITS): (State.FAILED, Action.NOTHING),
    (State.STARTING, Event.STOP): (State.STOPPING, Action.NOTHING),
    (State.LOADING, Event.CONFIRMED): (State.HELD, Action.NOTHING),
    (State.LOADING, Event.MISMATCH): (State.FAILED, Action.REMOVE_CHILD),
    (State.LOADING, Event.CHILD_EXITED): (State.WAITING, Action.RETRY_LATER),
    (State.LOADING, Event.EXHAUSTED): (State.FAILED, Action.NOTHING),
    (State.LOADING, Event.STOP): (State.STOPPING, Action.REMOVE_CHILD),
    (State.HELD, Event.CHILD_EXITED): (State.WAITING, Action.RETRY_LATER),
    (State.HELD, Event.LOST): (State.WAITING, Action.REMOVE_CHILD_AND_RETRY_LATER),
    (State.HELD, Event.STOP): (State.STOPPING, Action.REMOVE_CHILD),
    (State.WAITING, Event.ROOM): (State.LOADING, Action.START_CHILD),
    (State.WAITING, Event.NO_ROOM): (State.WAITING, Action.LOOK_LATER),
    (State.WAITING, Event.NEVER_FITS): (State.FAILED, Action.NOTHING),
    (State.WAITING, Event.STOP): (State.STOPPING, Action.NOTHING),
    (State.FAILED, Event.STOP): (State.STOPPING, Action.NOTHING),
    (State.STOPPING, Event.STOP): (State.STOPPING, Action.NOTHING),
}

_WITHOUT_CHILD = (State.STARTING, State.WAITING, State.FAILED, State.STOPPING)
_OF_A_CHILD = (Event.CONFIRMED, Event.MISMATCH, Event.CHILD_EXITED, Event.EXHAUSTED, Event.LOST)
_OF_A_TRY = (Event.ROOM, Event.NO_ROOM, Event.NEVER_FITS)

# Why a pair can't come up: no child is there to have the event; a child is there or the end is near, so
# nothing is tried; a loading child has nothing to lose yet; a holding one was confirmed and verified, and has
# not failed to load.
IMPOSSIBLE: frozenset[tuple[State, Event]] = frozenset(
    {(state, event) for state in _WITHOUT_CHILD for event in _OF_A_CHILD}
    | {(state, event) for state in (State.LOADING, State.HELD) for event in _OF_A_TRY}
    | {(state, event) for state in (State.FAILED, State.STOPPING) for event in _OF_A_TRY}
    | {(State.LOADING, Event.LOST)}
    | {(State.HELD, event) for event in (Event.CONFIRMED, Event.MISMATCH, Event.EXHAUSTED)}
)


class ImpossibleTransitionError(Exception):
    """A bug: this event can't come in this state."""


def step(state: State, event: Event) -> tuple[State, Action]:
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise ImpossibleTransitionError(f"{event} in state {state}") from None
