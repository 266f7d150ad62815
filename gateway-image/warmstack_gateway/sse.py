"""An event stream on its way through: whole events go on, the end is known, a cut one is ended properly.

In: bytes as the engine sends them. Out: bytes for the client, whether the stream reached its end, the error
event for one that did not. An event that is not whole stays here: a client could not read it anyway, and
behind half an event no error event can stand. Refuses to know sockets.
"""

import json
import re
from enum import Enum
from typing import Any

from warmstack_gateway.refusals import Refusal

# An event without an end is passed on in parts from here on, so that nothing grows without bound.
MOST_PENDING_BYTES = 1 << 20
_CHOICE = re.compile(rb'"choices": ?\[\{"index": ?(\d+)')
_FINISHED = re.compile(rb'"finish_reason": ?"')
_NUMBER = re.compile(rb'"sequence_number": ?(\d+)')


class Dialect(Enum):
    """The APIs below /v1 that stream; each says "end" and "error" in its own words."""

    COMPLETIONS = "completions"
    RESPONSES = "responses"
    MESSAGES = "messages"


# How a line begins by which the engine has said all it had to say.
_ENDS = {
    Dialect.COMPLETIONS: (b"data: [DONE]",),
    Dialect.RESPONSES: (b"event: response.completed", b"event: response.incomplete", b"data: [DONE]"),
    Dialect.MESSAGES: (b"event: message_stop", b"data: [DONE]"),
}
# And by which it says that something went wrong; an end as well.
_COMPLAINTS = {
    Dialect.COMPLETIONS: (b'data: {"error"',),
    Dialect.RESPONSES: (b"event: response.failed", b"event: error"),
    Dialect.MESSAGES: (b"event: error",),
}


def dialect_of(path: str) -> Dialect:
    """By the path of the request, without its query."""
    if path.startswith("/v1/responses"):
        return Dialect.RESPONSES
    return Dialect.MESSAGES if path.startswith("/v1/messages") else Dialect.COMPLETIONS


class EventStream:
    """One stream. `feed` for each piece that came, then `finished`."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self.complaint: int | None = None  # where in what was fed last the engine's own error event begins
        self._ends = _ENDS[dialect]
        self._complaints = _COMPLAINTS[dialect]
        self._pending = b""
        self._last = b""
        self._ended = False
        self._open: set[bytes] = set()  # choices that have begun and did not finish
        self._closed = False  # at least one did

    def feed(self, piece: bytes) -> bytes:
        """What may go to the client now: whole events, perhaps none."""
        data = self._pending + piece if self._pending else piece
        end = _end_of_events(data)
        if end == 0 and len(data) > MOST_PENDING_BYTES:
            end = len(data)
        self._pending = data[end:]
        whole = data if end == len(data) else data[:end]
        if whole:
            self._read(whole)
        return whole

    def withdraw(self, whole: bytes) -> bytes:
        """What was fed last without the engine's complaint: it ends, and the stream counts as cut."""
        self._ended = self._closed = False
        return whole[: self.complaint]

    @property
    def finished(self) -> bool:
        """Whether the engine ended the stream itself: by its last word, or by the end of every choice."""
        return self._ended or (self._closed and not self._open)

    @property
    def last_words(self) -> bytes:
        """What a finished stream still needs: the rest of its last event, or the [DONE] that was lost."""
        if self._ended:
            return self._pending
        return b"data: [DONE]\n\n"

    def error_event(self, refusal: Refusal) -> bytes:
        """The last event of a stream that was cut."""
        if self._dialect is Dialect.RESPONSES:
            numbers = _NUMBER.findall(self._last)
            number = int(numbers[-1]) + 1 if numbers else 0
            fields = {"code": refusal.code, "message": refusal.sentence, "param": None}
            return _event({"type": "error", **fields, "sequence_number": number}, name="error")
        if self._dialect is Dialect.MESSAGES:
            error = {"type": "api_error", "message": refusal.sentence}
            return _event({"type": "error", "error": error}, name="error")
        return _event({"error": refusal.error})

    def _read(self, whole: bytes) -> None:
        self._last = whole
        self.complaint = _line_that_starts(whole, self._complaints)
        if self.complaint is not None or _line_that_starts(whole, self._ends) is not None:
            self._ended = True
        if self._dialect is Dialect.COMPLETIONS and not self._ended:
            self._follow_choices(whole)

    def _follow_choices(self, whole: bytes) -> None:
        """vLLM sends one choice in an event, its index first."""
        for line in whole.split(b"\n"):
            choice = _CHOICE.search(line)
            if choice is None:
                continue
            if _FINISHED.search(line):
                self._closed = True
                self._open.discard(choice[1])
            else:
                self._open.add(choice[1])


def _end_of_events(data: bytes) -> int:
    """Where the last whole event ends."""
    if data.endswith(b"\n\n"):
        return len(data)
    return max(data.rfind(b"\n\n") + 2 if b"\n\n" in data else 0, _end_with_returns(data))


def _end_with_returns(data: bytes) -> int:
    at = data.rfind(b"\r\n\r\n")
    return at + 4 if at >= 0 else 0


def _line_that_starts(whole: bytes, marks: tuple[bytes, ...]) -> int | None:
    """Where the first line with one of these starts. JSON has no raw line end, so none is inside a text."""
    if whole.startswith(marks):
        return 0
    found = [at + 1 for mark in marks if (at := whole.find(b"\n" + mark)) >= 0]
    return min(found) if found else None


def _event(value: dict[str, Any], name: str | None = None) -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(value)}\n\n".encode()
