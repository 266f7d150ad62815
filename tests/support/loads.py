"""A load as data: requests and events are two or three literals each."""

from __future__ import annotations

from typing import Any

from warmops.load_plan import PROMPTS, Band, EventSeen, LoadRun, Outcome, Request

PARIS = "Paris."


def request(sent: float, *, takes: float = 0.2, streaming: bool = True, **changes: Any) -> Request:
    """A request that was answered: its first token after half of what it takes."""
    facts: dict[str, Any] = {
        "client": 0,
        "prompt": PROMPTS[0],
        "streaming": streaming,
        "intended_at": sent,
        "sent_at": sent,
        "ended_at": sent + takes,
        "outcome": Outcome.ANSWERED,
        "first_token_at": sent + takes / 2 if streaming else None,
        "tokens": 7,
        "status": 200,
        "text": PARIS,
    }
    return Request(**(facts | changes))


def every_prompt(sent: float, **changes: Any) -> tuple[Request, ...]:
    """One answered request for each prompt, all at the same time."""
    return tuple(request(sent, prompt=prompt, **changes) for prompt in PROMPTS)


def ended_by_an_error(sent: float, *, takes: float = 1.0) -> Request:
    return request(
        sent,
        takes=takes,
        outcome=Outcome.ERROR_EVENT,
        code="engine_stopped",
        message="The engine stopped.",
        text="Par",
    )


def event(begun: float = 10.0, ended: float = 20.0, **changes: Any) -> EventSeen:
    """An event of two phases that ended streams in its first tenth of a second."""
    facts: dict[str, Any] = {
        "begun_at": begun,
        "ended_at": ended,
        "bands": (
            Band(name="down", begin=begun, end=begun + 4),
            Band(name="starting", begin=begun + 4, end=ended),
        ),
        "ending": (begun, begun + 0.1),
    }
    return EventSeen(**(facts | changes))


def run(name: str, *requests: Request, seen: EventSeen | None = None, repetition: int = 1) -> LoadRun:
    return LoadRun(
        event=name, repetition=repetition, begun_at=0.0, ended_at=30.0, requests=requests, seen=seen
    )
