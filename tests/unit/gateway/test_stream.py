"""Streams pass at once, a cut one is seen to be cut, and one nobody reads any more ends (case 36)."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import time
from collections.abc import Iterator

from fakes.engine import FakeEngine, chat_body
from fakes.gateway import Gateway
from support.waiting import wait_until


@contextlib.contextmanager
def stream(gateway: Gateway) -> Iterator[http.client.HTTPResponse]:
    with contextlib.closing(gateway.connect()) as connection:
        connection.request("POST", "/v1/chat/completions", body=chat_body(stream=True))
        yield connection.getresponse()


def events(response: http.client.HTTPResponse) -> Iterator[str]:
    """The data of each event, as soon as its line is complete."""
    while line := response.readline():
        if line.startswith(b"data: "):
            yield line.removeprefix(b"data: ").decode().strip()


def test_tokens_arrive_one_by_one(gateway: Gateway, engine: FakeEngine) -> None:
    engine.behave(token_seconds=0.1)
    with stream(gateway) as response:
        times = [time.monotonic() for event in events(response) if '"content"' in event]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert response.headers["Content-Type"].startswith("text/event-stream")
    assert len(gaps) == len(engine.behaviour.tokens) - 1
    assert min(gaps) > 0.05, gaps


def test_a_cut_stream_ends_with_a_sentence(gateway: Gateway, engine: FakeEngine) -> None:
    engine.behave(die_after_tokens=3, token_seconds=0.01)
    with stream(gateway) as response:
        *before, last = events(response)
    assert [json.loads(event)["choices"][0]["delta"]["content"] for event in before] == [
        "The",
        " capital",
        " of",
    ]
    assert json.loads(last)["error"] == {
        "message": "The engine stopped while it was answering. Please send your message again.",
        "type": "server_error",
        "param": None,
        "code": "engine_stopped",
    }
    engine.behave(die_after_tokens=None)
    engine.start()
    assert gateway.ask("POST", "/v1/chat/completions", body=chat_body()).status == 200
    assert len(engine.chats()) == 2, "what was begun is not sent again"


def test_an_error_event_of_the_engine_passes(gateway: Gateway, engine: FakeEngine) -> None:
    engine.behave(error_after_tokens=2)
    with stream(gateway) as response:
        *_, error, done = events(response)
    assert json.loads(error)["error"]["message"] == "EngineCore encountered an issue."
    assert done == "[DONE]"


def test_a_client_that_waits_no_longer_for_a_plain_answer_leaves_the_engine(
    gateway: Gateway, engine: FakeEngine
) -> None:
    engine.behave(tokens=("word ",) * 100, token_seconds=0.1)
    with contextlib.closing(gateway.connect()) as connection:
        connection.request("POST", "/v1/chat/completions", body=chat_body())
        wait_until(lambda: engine.chats(), seconds=5, what="the engine has the request")
        assert gateway.route("show")["engines"]["127.0.0.1"]["in_flight"] == 1
    wait_until(
        lambda: gateway.route("show")["engines"]["127.0.0.1"]["in_flight"] == 0,
        seconds=3,
        what="it is sent there no longer",
    )


def test_a_client_that_stops_reading_stops_the_engine(gateway: Gateway, engine: FakeEngine) -> None:
    engine.behave(tokens=("word ",) * 1000, token_seconds=0.02)
    with stream(gateway) as response:
        next(events(response))
    wait_until(lambda: engine.cancelled == 1, seconds=5, what="the engine saw the client go")
