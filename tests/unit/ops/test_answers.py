"""Questions against an engine that speaks the real protocol, and breaks it on demand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fakes.engine import MODEL, Behaviour, FakeEngine
from warmops.answers import AnswerError, ask, is_ready, served_models


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    with FakeEngine() as running:
        yield running


def url(engine: FakeEngine) -> str:
    return f"http://{engine.host}:{engine.port}"


def test_a_whole_answer_with_its_times(engine: FakeEngine) -> None:
    engine.behaviour = Behaviour(token_seconds=0.02)
    answer = ask(url(engine), MODEL)
    assert answer.text == "The capital of France is Paris."
    assert answer.model == MODEL
    # Seven tokens with a pause before each: the first is there well before the last.
    assert 0.02 <= answer.first_token_seconds < answer.total_seconds - 0.1


def test_the_request_is_greedy(engine: FakeEngine) -> None:
    ask(url(engine), MODEL, max_tokens=7)
    sent = engine.received[-1].json
    assert (sent["temperature"], sent["max_tokens"], sent["stream"]) == (0, 7, True)
    assert sent["cache_salt"]


def test_tokens_without_text_are_an_answer_that_can_be_compared(engine: FakeEngine) -> None:
    engine.behaviour = Behaviour(tokens=("", "", ""))
    assert ask(url(engine), MODEL).text == "tokens 0 1 2"


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        (Behaviour(die_after_tokens=3), "cut|before the answer was whole"),
        (Behaviour(die_after_tokens=0), "no answer came"),
        (Behaviour(error_after_tokens=2), "the stream carried an error"),
        (Behaviour(tokens=()), "no token|whole"),
    ],
)
def test_no_whole_answer_is_an_error(engine: FakeEngine, behaviour: Behaviour, words: str) -> None:
    engine.behaviour = behaviour
    with pytest.raises(AnswerError, match=words):
        ask(url(engine), MODEL)


def test_nobody_listens(engine: FakeEngine) -> None:
    address = url(engine)
    engine.die()
    with pytest.raises(AnswerError, match="no answer came"):
        ask(address, MODEL)
    with pytest.raises(AnswerError, match="does not answer"):
        served_models(address)
    assert not is_ready(address)


def test_served_models(engine: FakeEngine) -> None:
    assert served_models(url(engine)) == (MODEL,)
