"""One request of a load, and what became of it.

In: where to ask, a prompt. Out: a `Request` record, whatever happens: answered, failed, cut, error event. It
refuses to know of other requests, of containers and of events.
"""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import dataclass, field, replace
from typing import Any

import requests

from warmops.answers import (
    CONNECT_SECONDS,
    AnswerError,
    brief,
    code_and_message,
    headers,
    refusal,
    spelled,
)
from warmops.load_plan import PROMPTS, Outcome, Request

# A held request is silent for as long as the gateway holds it; this is longer than any sensible hold.
_SILENCE_SECONDS = 900.0
_CHAT, _COMPLETION = "/v1/chat/completions", "/v1/completions"
# Monotonic, and counted from the epoch, so that it can be compared with times of containers.
_EPOCH = time.time() - time.monotonic()


def now() -> float:
    """Unix seconds of a clock that is never set back while this program runs."""
    return _EPOCH + time.monotonic()


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Where the clients ask, and for how long an answer."""

    base_url: str
    model: str
    api_key: str | None
    max_tokens: int
    path: str = _CHAT


def find_path(asked: Asked) -> str:
    """The path that answers this model: a model without a chat template gets plain completions.

    Raises AnswerError when neither answers.
    """
    for path in (_CHAT, _COMPLETION):
        there = replace(asked, path=path)
        request = send(there, prompt=PROMPTS[0], streaming=False, client=0, intended_at=now())
        if request.outcome is Outcome.ANSWERED:
            return path
        if request.status != 400 or "chat template" not in (request.message or ""):
            break
    raise AnswerError(request.message or "no answer came", status=request.status)


def send(asked: Asked, *, prompt: str, streaming: bool, client: int, intended_at: float) -> Request:
    """Send one request and wait for its end, whatever that is."""
    reading = _Reading()
    sent_at = now()
    try:
        with requests.post(
            asked.base_url + asked.path,
            json=_body(asked, prompt, streaming),
            headers=headers(asked.api_key),
            timeout=(CONNECT_SECONDS, _SILENCE_SECONDS),
            stream=True,  # also of a whole answer: its status is known before its end
        ) as response:
            reading.status = response.status_code
            if response.status_code != 200:
                reading.code, reading.message = refusal(response)
            elif streaming:
                _read_stream(response, reading)
            else:
                _read_whole(response, reading)
    except requests.RequestException as error:
        if reading.outcome is None:
            reading.message = brief(error)
    return Request(
        client=client,
        prompt=prompt,
        streaming=streaming,
        intended_at=intended_at,
        sent_at=sent_at,
        ended_at=now(),
        outcome=reading.judged(),
        first_token_at=reading.first_token_at,
        tokens=reading.tokens,
        status=reading.status,
        code=reading.code,
        message=reading.message,
        text=reading.text(),
    )


@dataclass(kw_only=True)
class _Reading:
    """What has come of an answer so far."""

    status: int | None = None
    code: str | None = None
    message: str | None = None
    outcome: Outcome | None = None
    first_token_at: float | None = None
    pieces: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    finished: bool = False

    @property
    def tokens(self) -> int:
        return len(self.token_ids)

    def text(self) -> str:
        text = "".join(self.pieces)
        return text if text.strip() or not self.token_ids else spelled(self.token_ids)

    def judged(self) -> Outcome:
        if self.outcome is not None:
            return self.outcome
        # With 200 the answer had begun, though perhaps with no token yet.
        return Outcome.CUT if self.status == 200 else Outcome.FAILED

    def take(self, choice: dict[str, Any]) -> None:
        part = choice.get("delta") or choice.get("message") or {}
        piece = choice.get("text") or part.get("content") or ""
        ids = choice.get("token_ids") or []
        if piece:
            self.pieces.append(piece)
        self.token_ids.extend(ids)
        if (piece or ids) and self.first_token_at is None:
            self.first_token_at = now()
        self.finished = self.finished or choice.get("finish_reason") is not None


def _read_stream(response: requests.Response, reading: _Reading) -> None:
    # chunk_size=None: lines come as they arrive. A byte at a time costs a core of the engine's own machine.
    for line in response.iter_lines(chunk_size=None):
        if not line.startswith(b"data:"):
            continue
        data = line[len(b"data:") :].strip()
        if data == b"[DONE]":
            if reading.finished:
                reading.outcome = Outcome.ANSWERED
            return
        event = _object(data)
        if event is None:  # cut in the middle of a line
            return
        if "error" in event:
            reading.code, reading.message = code_and_message(event)
            reading.outcome = Outcome.ERROR_EVENT
            return
        for choice in event.get("choices", []):
            reading.take(choice)


def _read_whole(response: requests.Response, reading: _Reading) -> None:
    answer = _object(response.content)
    for choice in (answer or {}).get("choices", []):
        reading.take(choice)
    # The moment of the first token is the engine's alone: here all of them come at once.
    reading.first_token_at = None
    if reading.finished:
        reading.outcome = Outcome.ANSWERED


def _object(data: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(data)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _body(asked: Asked, prompt: str, streaming: bool) -> dict[str, Any]:
    question: dict[str, Any] = (
        {"messages": [{"role": "user", "content": prompt}]} if asked.path == _CHAT else {"prompt": prompt}
    )
    return {
        "model": asked.model,
        "temperature": 0,
        "max_tokens": asked.max_tokens,
        "stream": streaming,
        "return_token_ids": True,
        # As in answers.py: a salt of its own keeps each request out of the prefix cache.
        "cache_salt": secrets.token_hex(16),
        **question,
    }
