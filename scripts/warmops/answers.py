"""Questions to the served model, in the OpenAI protocol, and how long the first token took.

In: a base URL (`http://127.0.0.1:8080`), a served model name. Out: an `Answer`, or `AnswerError` with one
sentence. It refuses to know containers and logs: what it measures is what a client sees.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import requests

REFERENCE_QUESTION = "What is the capital of France?"
REFERENCE_TOKENS = 24
CONNECT_SECONDS = 5.0


class AnswerError(Exception):
    """No complete answer came. `str(error)` is one sentence; `status` the HTTP status where there was one."""

    def __init__(self, sentence: str, *, status: int | None = None) -> None:
        super().__init__(sentence)
        self.status = status


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A whole answer. Seconds count from the moment the request was sent."""

    text: str
    model: str
    finish_reason: str
    first_token_seconds: float
    total_seconds: float
    sent_at: float


def served_models(base_url: str, *, api_key: str | None = None, timeout: float = 10.0) -> tuple[str, ...]:
    """Names that `/v1/models` lists. Raises AnswerError when there is no such list."""
    try:
        response = requests.get(
            f"{base_url}/v1/models", headers=headers(api_key), timeout=(CONNECT_SECONDS, timeout)
        )
    except requests.RequestException as error:
        raise AnswerError(f"{base_url}/v1/models does not answer: {brief(error)}") from error
    if response.status_code != 200:
        raise AnswerError(_error_sentence(response), status=response.status_code)
    return tuple(str(entry["id"]) for entry in response.json().get("data", []))


def is_ready(base_url: str, *, timeout: float = 2.0) -> bool:
    """Whether the gateway says that an engine is ready; its `/ready` is never held."""
    try:
        return requests.get(f"{base_url}/ready", timeout=timeout).status_code == 200
    except requests.RequestException:
        return False


def ask(
    base_url: str,
    model: str,
    *,
    question: str = REFERENCE_QUESTION,
    max_tokens: int = REFERENCE_TOKENS,
    api_key: str | None = None,
    timeout: float = 180.0,
) -> Answer:
    """Ask greedily (temperature 0) and stream the answer. `timeout` bounds each wait for data, in seconds.

    A model without a chat template is asked for a plain completion. Raises AnswerError for any refusal, for a
    stream that was cut, and for an answer of no token at all.
    """
    common = {
        "model": model,
        "temperature": 0,
        "max_tokens": max_tokens,
        "stream": True,
        "return_token_ids": True,
    }
    # With the prefix cache fewer tokens are computed together, and near-ties of greedy answers fall otherwise
    # (seen on an H200): a salt of its own keeps each question out of it.
    common["cache_salt"] = secrets.token_hex(16)
    chat = {**common, "messages": [{"role": "user", "content": question}]}
    try:
        return _stream(f"{base_url}/v1/chat/completions", chat, api_key, timeout)
    except AnswerError as error:
        if error.status != 400 or "chat template" not in str(error):
            raise
    return _stream(f"{base_url}/v1/completions", {**common, "prompt": question}, api_key, timeout)


def completion_request(model: str) -> tuple[str, str]:
    """Path and JSON body of the reference question as a plain completion, to be answered greedily and whole.

    No chat template stands between: engines whose templates differ can be compared.
    """
    body = {
        "model": model,
        "prompt": REFERENCE_QUESTION,
        "temperature": 0,
        "max_tokens": REFERENCE_TOKENS,
        "return_token_ids": True,
        "cache_salt": secrets.token_hex(16),  # see `ask`
    }
    return "/v1/completions", json.dumps(body)


def completion_text(response: str) -> str:
    """What was answered to `completion_request`. Raises AnswerError with the sentence of any other answer."""
    try:
        body = json.loads(response)
        choice = body["choices"][0]
    except (ValueError, KeyError, IndexError, TypeError):
        raise AnswerError(_sentence_of(response)) from None
    text, tokens = str(choice.get("text") or ""), choice.get("token_ids") or []
    if not text.strip() and not tokens:
        raise AnswerError("the answer holds no token")
    return text if text.strip() else spelled(tokens)


def _sentence_of(response: str) -> str:
    try:
        return code_and_message(json.loads(response))[1]
    except ValueError:
        return response.strip()[:300] or "no answer came"


def _stream(url: str, body: dict[str, Any], api_key: str | None, timeout: float) -> Answer:
    sent_at, begun = time.time(), time.monotonic()
    pieces: list[str] = []
    token_ids: list[int] = []
    first: float | None = None
    finish: str | None = None
    model = ""
    try:
        with requests.post(
            url, json=body, headers=headers(api_key), timeout=(CONNECT_SECONDS, timeout), stream=True
        ) as response:
            if response.status_code != 200:
                raise AnswerError(_error_sentence(response), status=response.status_code)
            for event in _events(response):
                if "error" in event:
                    raise AnswerError(f"the stream carried an error: {code_and_message(event)[1]}")
                model = str(event.get("model", model))
                for choice in event.get("choices", []):
                    piece = choice.get("text") or choice.get("delta", {}).get("content") or ""
                    tokens = choice.get("token_ids") or []
                    if (piece or tokens) and first is None:
                        first = time.monotonic() - begun
                    token_ids.extend(tokens)
                    pieces.append(piece)
                    finish = choice.get("finish_reason") or finish
    except requests.RequestException as error:
        what = "the stream was cut" if pieces else "no answer came"
        raise AnswerError(f"{what}: {brief(error)}") from error
    if finish is None:
        raise AnswerError("the stream ended before the answer was whole")
    if first is None:
        raise AnswerError("the answer holds no token")
    return Answer(
        text="".join(pieces) if "".join(pieces).strip() else spelled(token_ids),
        model=model,
        finish_reason=finish,
        first_token_seconds=first,
        total_seconds=time.monotonic() - begun,
        sent_at=sent_at,
    )


def _events(response: requests.Response) -> Iterator[dict[str, Any]]:
    # chunk_size=1: a larger one holds back the first token until the chunk is full.
    for line in response.iter_lines(chunk_size=1):
        if not line.startswith(b"data:"):
            continue
        data = line[len(b"data:") :].strip()
        if data == b"[DONE]":
            return
        value = json.loads(data)
        if isinstance(value, dict):
            yield value


def spelled(token_ids: list[int]) -> str:
    """Tokens without text, such as a random-weight model makes: they can be compared all the same."""
    return f"tokens {' '.join(map(str, token_ids))}"


def headers(api_key: str | None) -> dict[str, str]:
    """The request headers that carry the key; none without a key."""
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}


def refusal(response: requests.Response) -> tuple[str | None, str]:
    """Code and sentence of an error response, whoever made it."""
    try:
        return code_and_message(response.json())
    except ValueError:
        return None, response.text.strip()[:300] or "no message"


def code_and_message(body: Any) -> tuple[str | None, str]:
    """Code (None without one) and sentence of an error, in the shape of the OpenAI API or in another."""
    error = body.get("error", body) if isinstance(body, dict) else body
    if not isinstance(error, dict):
        return None, str(error)
    code = error.get("code")
    return (None if code is None else str(code)), str(error.get("message", error))


def _error_sentence(response: requests.Response) -> str:
    return f"HTTP {response.status_code}: {refusal(response)[1]}"


def brief(error: Exception) -> str:
    """The innermost cause in a few words; urllib3 wraps it in a page of object names."""
    cause: BaseException = error
    while cause.__cause__ is not None or cause.__context__ is not None:
        cause = cause.__cause__ or cause.__context__ or cause
    return f"{type(cause).__name__}: {cause}"[:200]
