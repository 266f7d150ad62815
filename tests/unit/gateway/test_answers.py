"""What becomes of an engine's answer: passed on as it is, cut with a sentence, or asked for once more."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from fakes.engine import chat_body
from fakes.gateway import Gateway, StartGateway, running_gateway
from fakes.raw_engine import END, OK, STREAM, RawEngine, Step, framed, json_head
from support.waiting import wait_until

CHAT = "/v1/chat/completions"
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}\n\n'
FINISH = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"
GOOD_JSON = b'{"good": true}'
GOOD: list[Step] = [json_head(14), GOOD_JSON]
SENTENCE = "The engine stopped while it was answering. Please send your message again."


@dataclass(frozen=True)
class Stage:
    """One gateway for all tests of this file, and the engine behind it that plays what a test asks for."""

    gateway: Gateway
    engine: RawEngine

    def play(self, *scripts: list[Step], reset: bool = False) -> None:
        self.engine.scripts, self.engine.reset = scripts, reset
        self.engine.received.clear()
        wait_until(
            lambda: self.gateway.ask("GET", "/ready").status == 200, seconds=5, what="the engine is ready"
        )


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("gateway")
    with (
        RawEngine() as engine,
        running_gateway(folder, upstreams=engine.address, WARMSTACK_HOLD="5s") as gateway,
    ):
        yield Stage(gateway, engine)


def stream_of(gateway: Gateway, path: str = CHAT) -> bytes:
    """The whole body of a stream that ends properly."""
    answer = gateway.ask("POST", path, body=chat_body(stream=True))
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    return answer.body


ERROR = {"message": SENTENCE, "type": "server_error", "param": None, "code": "engine_stopped"}
CUT = b"data: " + json.dumps({"error": ERROR}).encode() + b"\n\n"


@pytest.mark.parametrize("reset", [True, False], ids=["reset", "closed"])
@pytest.mark.parametrize(
    ("steps", "seen"),
    [
        ([framed(EVENT)], EVENT + CUT),
        ([framed(EVENT), END], EVENT + CUT),
        ([framed(EVENT), framed(EVENT[:30])], EVENT + CUT),
        ([framed(EVENT + EVENT[:30]), framed(EVENT[30:]), framed(b"data:")], EVENT + EVENT + CUT),
        ([framed(EVENT), b"5\r\nda"], EVENT + CUT),
        ([framed(EVENT), framed(FINISH), framed(DONE), END], EVENT + FINISH + DONE),
        ([framed(EVENT), framed(FINISH), framed(DONE)], EVENT + FINISH + DONE),
        ([framed(EVENT), framed(FINISH)], EVENT + FINISH + DONE),
        ([framed(EVENT), framed(b'data: {"error": {"message": "x"}}\n\n')], None),
    ],
)
def test_the_end_of_a_stream(stage: Stage, steps: list[Step], seen: bytes | None, reset: bool) -> None:
    stage.play([STREAM, *steps], reset=reset)
    body = stream_of(stage.gateway)
    assert body == (EVENT + b'data: {"error": {"message": "x"}}\n\n' if seen is None else seen)
    assert len(stage.engine.received) == 1, "what was begun is not sent again"


@pytest.mark.parametrize(
    ("path", "event", "last"),
    [
        (
            "/v1/responses",
            b'event: response.created\ndata: {"type":"response.created","sequence_number":6}\n\n',
            {
                "type": "error",
                "code": "engine_stopped",
                "message": SENTENCE,
                "param": None,
                "sequence_number": 7,
            },
        ),
        (
            "/v1/messages",
            b'event: message_start\ndata: {"type":"message_start"}\n\n',
            {"type": "error", "error": {"type": "api_error", "message": SENTENCE}},
        ),
    ],
)
def test_other_apis_hear_of_a_cut_in_their_own_words(
    stage: Stage, path: str, event: bytes, last: object
) -> None:
    stage.play([STREAM, framed(event)])
    body = stream_of(stage.gateway, path)
    assert body.startswith(event + b"event: error\ndata: ")
    assert json.loads(body.rpartition(b"data: ")[2]) == last


def test_an_event_goes_out_before_the_next_is_made(stage: Stage) -> None:
    seen = threading.Event()
    stage.play([STREAM, framed(EVENT), lambda: seen.wait(10), framed(FINISH), framed(DONE), END])
    with contextlib.closing(stage.gateway.connect()) as connection:
        connection.request("POST", CHAT, body=chat_body(stream=True))
        response = connection.getresponse()
        assert response.read(len(EVENT)) == EVENT
        seen.set()
        assert response.read() == FINISH + DONE


@pytest.mark.parametrize("reset", [True, False], ids=["reset", "closed"])
@pytest.mark.parametrize(
    "steps",
    [
        [],
        [b"HTTP/1.1 200"],
        [json_head(14)],
        [json_head(14), b'{"good":'],
        [OK + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n", framed(b'{"good":')],
        [STREAM],
        [STREAM, framed(EVENT[:20])],
        [STREAM, END],
        [b"no HTTP at all\r\n\r\n"],
    ],
    ids=[
        "nothing",
        "status",
        "headers",
        "json",
        "chunked",
        "stream",
        "half event",
        "empty stream",
        "no http",
    ],
)
def test_an_answer_that_has_not_begun_is_asked_for_once_more(
    stage: Stage, steps: list[Step], reset: bool
) -> None:
    body = chat_body(size_bytes=300_000)
    stage.play(steps, GOOD, reset=reset)
    answer = stage.gateway.ask("POST", CHAT, body=body)
    assert (answer.status, answer.json) == (200, {"good": True})
    assert [request.partition(b"\r\n\r\n")[2] for request in stage.engine.received] == [body, body]
    stage.play(steps, reset=reset)
    answer = stage.gateway.ask("POST", CHAT, body=body)
    assert (answer.status, answer.error["code"]) == (503, "engine_stopped")
    assert len(stage.engine.received) == 2, "never sent oftener"


def test_a_huge_answer_that_is_cut_ends_the_connection(stage: Stage) -> None:
    stage.play([json_head(12_000_000), b" " * 10_000_000])
    with contextlib.closing(stage.gateway.connect()) as connection:
        connection.request("POST", CHAT, body=chat_body())
        with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
            connection.getresponse().read()
    assert len(stage.engine.received) == 1


def test_a_huge_answer_passes_whole(stage: Stage) -> None:
    text = json.dumps({"text": "x" * 20_000_000}).encode()
    stage.play([json_head(len(text)), text])
    answer = stage.gateway.ask("POST", CHAT, body=chat_body())
    assert answer.body == text
    assert answer.headers["Content-Length"] == str(len(text))


COMPLAINT = b'data: {"error": {"message": "EngineCore encountered an issue.", "code": 500}}\n\n'


@pytest.mark.parametrize("healthy", [True, False])
@pytest.mark.parametrize("together", [True, False], ids=["one piece", "pieces"])
def test_the_complaint_of_an_engine_that_ends_is_put_into_words(
    stage: Stage, healthy: bool, together: bool
) -> None:
    def core_dies() -> None:
        stage.engine.healthy = healthy

    said: list[Step] = [framed(EVENT), framed(COMPLAINT), framed(DONE)]
    if together:
        said = [framed(EVENT + COMPLAINT + DONE)]
    stage.play([core_dies, STREAM, *said, END])
    try:
        body = stream_of(stage.gateway)
    finally:
        stage.engine.healthy = True
    assert body == (EVENT + COMPLAINT + DONE if healthy else EVENT + CUT)


def test_a_complaint_before_anything_else_is_no_beginning(stage: Stage) -> None:
    def core(alive: bool) -> Step:
        return lambda: setattr(stage.engine, "healthy", alive)

    stage.play([core(False), STREAM, framed(COMPLAINT), framed(DONE), END], GOOD)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(stage.gateway.ask, "POST", CHAT, body=chat_body(stream=True))
        wait_until(lambda: stage.gateway.route("show")["waiting"] == 1, seconds=5, what="it waits again")
        stage.engine.healthy = True
        assert waiting.result().body == GOOD_JSON
    assert len(stage.engine.received) == 2


@pytest.mark.parametrize("healthy", [True, False])
def test_a_500_of_an_engine_that_ends_is_no_answer(start_gateway: StartGateway, healthy: bool) -> None:
    said = b'{"error":{"message":"EngineCore encountered an issue."}}'
    head = (
        b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\nContent-Length: 56\r\n\r\n"
    )

    with RawEngine() as dying, RawEngine(scripts=[GOOD]) as other:

        def core_dies() -> None:
            dying.healthy = healthy

        dying.scripts = [[core_dies, head, said]]
        gateway = start_gateway(upstreams=f"{dying.address} {other.address}", WARMSTACK_HOLD="5s")
        wait_until(
            lambda: [line["name"] for line in gateway.marks("engine") if line["ready"]],
            wanted=lambda names: {dying.address, other.address} <= set(names),
            seconds=5,
            what="both are ready",
        )
        answer = gateway.ask("POST", CHAT, body=chat_body())
    assert (answer.status, answer.body) == ((500, said) if healthy else (200, GOOD_JSON))
    assert len(other.received) == (0 if healthy else 1)


@pytest.mark.parametrize(
    ("method", "steps", "status", "body"),
    [
        ("GET", [b"HTTP/1.1 204 No Content\r\n\r\n"], 204, b""),
        ("HEAD", [OK + b"Content-Length: 77\r\n\r\n"], 200, b""),
        ("GET", [b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnone"], 404, b"none"),
        ("GET", [b"HTTP/1.1 302 Found\r\nLocation: /v1/x\r\nContent-Length: 0\r\n\r\n"], 302, b""),
        ("DELETE", [b"HTTP/1.1 418 I'm a teapot\r\nContent-Length: 0\r\n\r\n"], 418, b""),
        ("GET", [OK + b"Content-Type: text/plain\r\n\r\n", b"until ", b"the end"], 200, b"until the end"),
        (
            "GET",
            [OK + b"Content-Type: audio/wav\r\nTransfer-Encoding: chunked\r\n\r\n", framed(b"ab"), END],
            200,
            b"ab",
        ),
        ("OPTIONS", [OK + b"Allow: GET\r\nContent-Length: 0\r\n\r\n"], 200, b""),
    ],
)
def test_any_answer_passes(stage: Stage, method: str, steps: list[Step], status: int, body: bytes) -> None:
    stage.play(steps)
    with contextlib.closing(stage.gateway.connect()) as connection:
        connection.request(method, "/v1/thing")
        response = connection.getresponse()
        text = response.read()
    assert (response.status, text) == (status, body)
    if method == "HEAD":
        assert response.headers["Content-Length"] == "77"


def test_headers_pass_both_ways_and_bodies_stay_compressed(stage: Stage) -> None:
    packed = gzip.compress(b'{"good": true}')
    lines = (
        b"Content-Type: application/json",
        b"Content-Encoding: gzip",
        b"Set-Cookie: a=1",
        b"Set-Cookie: b=2",
        b"X-Thing: caf\xc3\xa9",
        b"X-Other: caf\xe9",
        b"Connection: X-Hop, keep-alive",
        b"X-Hop: 1",
        b"Server: uvicorn",
        b"Content-Length: %d" % len(packed),
    )
    stage.play([OK + b"\r\n".join(lines) + b"\r\n\r\n", packed])
    sent = {
        "Content-Encoding": "gzip",
        "Content-Type": "application/json",
        "Accept-Encoding": "gzip",
        "Authorization": "Bearer s3cret",
        "Cookie": "x" * 20_000,
        "X-Request-Id": "7",
        "Expect": "100-continue",
        "Connection": "X-Mine",
        "X-Mine": "1",
    }
    with contextlib.closing(stage.gateway.connect()) as connection:
        connection.request("POST", "/v1/thing?a=%2F&b=%20c", body=packed, headers=sent)
        response = connection.getresponse()
        assert response.read() == packed
    assert response.headers.get_all("Set-Cookie") == ["a=1", "b=2"]
    assert response.headers["Server"] == "uvicorn"
    assert response.headers["Content-Encoding"] == "gzip"
    assert "X-Hop" not in response.headers
    assert response.headers["X-Thing"].encode("latin-1") == "café".encode()
    request_head, _, request_body = stage.engine.received[0].partition(b"\r\n\r\n")
    first, *received = request_head.decode().split("\r\n")
    assert first == "POST /v1/thing?a=%2F&b=%20c HTTP/1.1"
    assert request_body == packed
    got = {name.lower(): value for name, _, value in (line.partition(": ") for line in received)}
    assert {name: got[name] for name in ("content-encoding", "cookie", "x-request-id", "host")} == {
        "content-encoding": "gzip",
        "cookie": "x" * 20_000,
        "x-request-id": "7",
        "host": f"127.0.0.1:{stage.gateway.port}",
    }
    assert not {"authorization", "expect", "x-mine", "transfer-encoding"} & set(got)


def test_no_header_is_made_up(stage: Stage) -> None:
    stage.play(GOOD)
    with contextlib.closing(stage.gateway.connect()) as connection:
        connection.putrequest("GET", "/v1/models", skip_accept_encoding=True)
        connection.endheaders()
        assert connection.getresponse().read() == GOOD_JSON
    names = {line.partition(b":")[0].lower() for line in stage.engine.received[0].split(b"\r\n")[1:] if line}
    ours = {b"host", b"connection", b"via"} | {b"x-forwarded-" + part for part in (b"for", b"host", b"proto")}
    assert names <= ours | {b"accept-encoding", b"user-agent"}, names
