"""One request of a load, against an engine that speaks the real protocol and breaks it on demand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fakes.engine import MODEL, Behaviour, FakeEngine
from warmops.answers import AnswerError
from warmops.load_plan import Outcome, Request
from warmops.load_request import Asked, find_path, now, send

ANSWER = "The capital of France is Paris."


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    with FakeEngine() as running:
        yield running


def asked(engine: FakeEngine) -> Asked:
    return Asked(base_url=f"http://{engine.address}", model=MODEL, api_key=None, max_tokens=7)


def sent(engine: FakeEngine, *, streaming: bool = True, **behaviour: Any) -> Request:
    engine.behaviour = Behaviour(**behaviour)
    return send(asked(engine), prompt="Why?", streaming=streaming, client=3, intended_at=now())


def test_a_whole_stream(engine: FakeEngine) -> None:
    request = sent(engine, token_seconds=0.02)
    assert (request.outcome, request.status, request.text, request.tokens) == ("answered", 200, ANSWER, 7)
    assert request.intended_at <= request.sent_at
    assert request.first_token_at is not None
    # Seven tokens with a pause before each: the first is seen well before the last.
    assert request.sent_at + 0.02 <= request.first_token_at <= request.ended_at - 0.1


def test_a_whole_answer_without_a_stream(engine: FakeEngine) -> None:
    request = sent(engine, streaming=False)
    assert (request.outcome, request.text, request.first_token_at) == ("answered", ANSWER, None)


def test_with_and_without_a_stream_the_digest_is_the_same(engine: FakeEngine) -> None:
    digests = {sent(engine, streaming=streaming).digest for streaming in (True, False)}
    assert len(digests) == 1
    assert sent(engine, tokens=("Berlin",)).digest not in digests


def test_tokens_without_text_can_be_compared(engine: FakeEngine) -> None:
    assert sent(engine, tokens=("", "", "")).text == "tokens 0 1 2"


@pytest.mark.parametrize(
    ("behaviour", "outcome", "code"),
    [
        ({"die_after_tokens": 3}, Outcome.CUT, None),
        ({"die_after_tokens": 0}, Outcome.FAILED, None),
        ({"error_after_tokens": 2}, Outcome.ERROR_EVENT, "500"),
        ({"end_after_tokens": 2}, Outcome.CUT, None),
        ({"tokens": ()}, Outcome.ANSWERED, None),
    ],
)
def test_what_became_of_a_stream(
    engine: FakeEngine, behaviour: dict[str, Any], outcome: Outcome, code: str | None
) -> None:
    request = sent(engine, **behaviour)
    assert (request.outcome, request.code) == (outcome, code)


def test_a_cut_stream_keeps_what_had_come(engine: FakeEngine) -> None:
    request = sent(engine, end_after_tokens=2)
    assert (request.text, request.tokens, request.status) == ("The capital", 2, 200)
    assert request.first_token_at is not None


def test_a_refusal_is_told(engine: FakeEngine) -> None:
    request = sent(engine, refuse=(503, "engine_not_ready", "No engine is ready."))
    assert (request.outcome, request.status, request.code) == ("failed", 503, "engine_not_ready")
    assert request.message == "No engine is ready."


def test_a_whole_answer_that_breaks_off_is_cut(engine: FakeEngine) -> None:
    assert sent(engine, streaming=False, end_after_tokens=0).outcome is Outcome.CUT


def test_nobody_listens(engine: FakeEngine) -> None:
    engine.die()
    request = sent(engine)
    assert (request.outcome, request.status) == ("failed", None)
    assert "refused" in (request.message or "")
    with pytest.raises(AnswerError, match="refused"):
        find_path(asked(engine))


def test_each_request_is_greedy_and_keeps_out_of_the_prefix_cache(engine: FakeEngine) -> None:
    for _ in range(2):
        sent(engine)
    first, second = (request.json for request in engine.chats())
    assert (first["temperature"], first["max_tokens"], first["stream"]) == (0, 7, True)
    assert first["cache_salt"] != second["cache_salt"]


def test_a_model_without_a_chat_template_gets_plain_completions(engine: FakeEngine) -> None:
    assert find_path(asked(engine)) == "/v1/chat/completions"
    engine.behave(refuse=(400, "400", "As of transformers v4.44 you must provide a chat template."))
    with pytest.raises(AnswerError):  # this engine has no /v1/completions
        find_path(asked(engine))
    assert engine.received[-1].path == "/v1/completions"
    assert engine.received[-1].json["prompt"]
