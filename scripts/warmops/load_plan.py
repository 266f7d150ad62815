"""The load: what each client sends, what happened to each request, and what each event may cost, as data.

In: nothing. Out: the events of `make load` with what must be so while each of them happens, and the records
that the clients and the event leave behind. It refuses to know how a request is sent, how an event is carried
out and how the records are judged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

# Asked by every client in turn, each beginning elsewhere, so that each prompt is asked with and without a
# stream. A batch of another size may decide a near-tie otherwise, with no event at all: each of these gave
# one text in fifty answers of SmolLM2-135M on the CPU, while three others that were tried did not.
PROMPTS = (
    "What is the capital of France?",
    "What is two plus two?",
    "How many days are in a week?",
    "What do bees make?",
    "What is the capital of Italy?",
)


class Outcome(StrEnum):
    """What became of one request, as its client saw it."""

    ANSWERED = "answered"
    FAILED = "failed"
    """No answer began: a status other than 200, or a connection that was refused or dropped."""
    CUT = "cut"
    """An answer that had begun ended without its end: no finish, no [DONE], no error event."""
    ERROR_EVENT = "error event"
    """A stream ended with an event that says what went wrong."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request. Times are unix seconds; `intended_at` is `sent_at` unless a fixed rate was asked for.

    `first_token_at` is known of streams alone. `text` is the answer as it came, as far as it came.
    """

    client: int
    prompt: str
    streaming: bool
    intended_at: float
    sent_at: float
    ended_at: float
    outcome: Outcome
    first_token_at: float | None = None
    tokens: int = 0
    status: int | None = None
    code: str | None = None
    message: str | None = None
    text: str = ""

    @property
    def digest(self) -> str:
        """What the text is compared by, short enough for a report: 16 hex digits of its sha256."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class LoadShape:
    """How the gateway is loaded. `seconds`: half before the event begins, half after it ended."""

    clients: int
    streaming: int
    seconds: float
    max_tokens: int
    rate: float | None = None
    """Requests a second of all clients together; None: each client sends as soon as it has its answer."""


@dataclass(frozen=True, kw_only=True)
class Band:
    """A phase of an event, unix seconds. An instant has the same begin and end."""

    name: str
    begin: float
    end: float


@dataclass(frozen=True, kw_only=True)
class EventSeen:
    """An event as it happened, unix seconds. Within `ending` the streams in flight were ended."""

    begun_at: float
    ended_at: float
    bands: tuple[Band, ...] = ()
    ending: tuple[float, float] | None = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """An event and what clients may feel of it. In every event no request fails and no stream is cut."""

    name: str
    purpose: str
    ends_streams: bool = False
    """Streams in flight may end, each with an error event; else none may."""
    control: str | None = None
    """The event to which the added time to first token is compared."""
    added_limit_seconds: float | None = None
    """Largest time to first token beyond that of the control."""
    takeover_limit_seconds: float | None = None
    """From the kill to the first token of a request that was sent after it."""


EVENTS: Mapping[str, Expectation] = MappingProxyType(
    {
        event.name: event
        for event in (
            Expectation(name="none", purpose="nothing happens: what the load costs by itself"),
            Expectation(
                name="restart",
                purpose="make restart: streams finish while the gateway holds new requests until the engine "
                "is back",
            ),
            Expectation(
                name="roll",
                purpose="make roll: a second engine takes over while the first is replaced",
                control="surge-only",
                added_limit_seconds=2.0,
            ),
            Expectation(
                name="surge-only",
                purpose="a second engine starts and stops beside the one that serves, and no traffic moves",
            ),
            Expectation(
                name="kill",
                purpose="SIGKILL of the engine's processes; it comes back by itself",
                ends_streams=True,
            ),
            Expectation(
                name="hang",
                purpose="SIGSTOP of the engine's processes; it is replaced once it counts as hung",
                ends_streams=True,
            ),
            Expectation(
                name="standby-kill",
                purpose="SIGKILL of the engine that serves while another stands by on the same weights",
                ends_streams=True,
                takeover_limit_seconds=1.0,
            ),
        )
    }
)


@dataclass(frozen=True, kw_only=True)
class LoadRun:
    """One event under load. `unsent` counts requests of a fixed rate whose time came and that nobody sent."""

    event: str
    repetition: int
    begun_at: float
    ended_at: float
    requests: Sequence[Request] = field(default_factory=tuple)
    seen: EventSeen | None = None
    unsent: int = 0
