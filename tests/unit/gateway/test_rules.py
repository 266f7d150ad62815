"""The relay's decisions as tables: no process, no socket."""

from __future__ import annotations

import json

import pytest

from warmstack_gateway.headers import for_client, for_engine
from warmstack_gateway.health import Answer, read_answer
from warmstack_gateway.hold import Room, Sendings
from warmstack_gateway.metrics import Counts, EngineNow, metrics_text
from warmstack_gateway.refusals import CUT, NOT_READY, STOPPED, STOPPING, TOO_LARGE, TOO_MANY, Refusal
from warmstack_gateway.route import WrongOrder, choose, reorder, restored, route_text
from warmstack_gateway.settings import Upstream, WrongSetting, read_duration, read_settings, read_upstreams
from warmstack_gateway.sse import MOST_PENDING_BYTES, Dialect, EventStream, dialect_of

# -- which engine ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "ready", "chosen"),
    [
        ("a", "a", "a"),
        ("a", "", None),
        ("ab", "ab", "a"),
        ("ba", "ab", "b"),
        ("ab", "b", "b"),
        ("ab", "", None),
    ],
)
def test_choice(order: str, ready: str, chosen: str | None) -> None:
    assert choose(tuple(order), lambda name: name in ready) == chosen


@pytest.mark.parametrize(
    ("known", "wanted", "order"),
    [("ab", "b", "ba"), ("ab", "ba", "ba"), ("abc", "c", "cab"), ("abc", "cb", "cba"), ("a", "a", "a")],
)
def test_order(known: str, wanted: str, order: str) -> None:
    found = reorder(tuple(known), tuple(wanted))
    assert found == restored(tuple(known), route_text(found)) == tuple(order)


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        ("", "no engine is named; there are a, b"),
        ("c", "there is no engine c; there are a, b"),
        ("aa", "a is named twice"),
    ],
)
def test_wrong_order(wanted: str, sentence: str) -> None:
    with pytest.raises(WrongOrder) as wrong:
        reorder(("a", "b"), tuple(wanted))
    assert str(wrong.value) == sentence


@pytest.mark.parametrize(
    ("kept", "order"),
    [
        ('{"schema": 1, "order": ["b", "a"]}', "ba"),
        ('{"order": ["b"]}', "ba"),
        ('{"order": ["gone", "b"]}', "ba"),
        ('{"order": ["gone"]}', "ab"),
        ('{"order": []}', "ab"),
        ('{"order": ["b", 3, null]}', "ba"),
    ],
)
def test_restored_order(kept: str, order: str) -> None:
    assert restored(("a", "b"), kept) == tuple(order)


@pytest.mark.parametrize("kept", ["", "{}", "[]", "null", '{"order": 1}', '{"order": ["a", "a"]}'])
def test_no_kept_order(kept: str) -> None:
    with pytest.raises(WrongOrder):
        restored(("a", "b"), kept)


# -- what may wait, how often it is sent -----------------------------------------------------------------


def test_room() -> None:
    room = Room(most_waiting=2, most_bytes=100)
    assert [room.enter(), room.enter(), room.enter()] == [True, True, False]
    room.leave()
    assert room.enter()
    assert [room.keep(60), room.keep(41), room.keep(40)] == [True, False, True]
    room.free(60)
    assert (room.waiting, room.held_bytes) == (2, 40)


def test_never_more_than_two_sendings() -> None:
    sendings = Sendings()
    may = []
    for _ in range(3):
        may.append(sendings.may_go_on)
        sendings = sendings.dropped()
    assert may == [True, True, False]


# -- settings --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("120s", 120), ("0s", 0), ("0", 0), ("300ms", 0.3), ("1m30s", 90), ("2h", 7200), ("1.5s", 1.5)],
)
def test_duration(text: str, seconds: float) -> None:
    assert read_duration("X", text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "120", "s", "1s ", "-1s", "1d", "1s!", "ten"])
def test_no_duration(text: str) -> None:
    with pytest.raises(WrongSetting):
        read_duration("X", text)


@pytest.mark.parametrize(
    ("text", "upstreams"),
    [
        ("vllm:8000 vllm-surge:8000", [("vllm", "vllm", 8000), ("vllm-surge", "vllm-surge", 8000)]),
        ("127.0.0.1:1  127.0.0.1:2", [("127.0.0.1:1", "127.0.0.1", 1), ("127.0.0.1:2", "127.0.0.1", 2)]),
        ("[::1]:8000", [("::1", "::1", 8000)]),
    ],
)
def test_upstreams(text: str, upstreams: list[tuple[str, str, int]]) -> None:
    found = [(one.name, one.host, one.port) for one in read_upstreams(text)]
    assert found == upstreams


@pytest.mark.parametrize("text", ["", "vllm", ":8000", "vllm:0", "vllm:x", "vllm:99999", "a:1 a:1"])
def test_no_upstreams(text: str) -> None:
    with pytest.raises(WrongSetting):
        read_upstreams(text)


def test_settings_without_variables() -> None:
    settings = read_settings({})
    assert settings.upstreams == (
        Upstream(name="vllm", host="vllm", port=8000),
        Upstream(name="vllm-surge", host="vllm-surge", port=8000),
    )
    assert (settings.hold_seconds, settings.metrics, str(settings.data)) == (120.0, None, "/data")


# -- event streams ---------------------------------------------------------------------------------------

CHOICE = b'data: {"id":"c","choices":[{"index":%d,"delta":{"content":"x"},"finish_reason":null}]}\n\n'
END = b'data: {"id":"c","choices":[{"index":%d,"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"
QUOTED = b'data: {"choices":[{"index":0,"delta":{"content":"data: [DONE] \\n\\ndata: [DONE]"}}]}\n\n'


@pytest.mark.parametrize(
    ("dialect", "events", "finished", "last_words"),
    [
        ("completions", [CHOICE % 0, DONE], True, b""),
        ("completions", [CHOICE % 0, END % 0, DONE], True, b""),
        ("completions", [CHOICE % 0, END % 0], True, DONE),
        ("completions", [CHOICE % 0], False, None),
        ("completions", [CHOICE % 0, CHOICE % 1, END % 0], False, None),
        ("completions", [CHOICE % 0, CHOICE % 1, END % 1, END % 0], True, DONE),
        ("completions", [CHOICE % 0 + CHOICE % 1 + END % 1 + END % 0 + DONE], True, b""),
        ("completions", [CHOICE % 0, b'data: {"error":{"message":"x"}}\n\n'], True, b""),
        ("completions", [CHOICE % 0, b'data: {"error": {"message":"x"}}\n\n', DONE], True, b""),
        ("completions", [QUOTED], False, None),
        ("completions", [b": ping\n\n"], False, None),
        ("completions", [b"data: [DONE]\r\n\r\n"], True, b""),
        ("completions", [CHOICE % 0, b"data: [DO", b"NE]\n\n"], True, b""),
        ("responses", [b"event: response.output_text.delta\ndata: {}\n\n"], False, None),
        ("responses", [b"event: response.completed\ndata: {}\n\n"], True, b""),
        ("responses", [b"event: response.failed\ndata: {}\n\n"], True, b""),
        ("responses", [b"event: response.incomplete\ndata: {}\n\n"], True, b""),
        ("messages", [b"event: content_block_delta\ndata: {}\n\n"], False, None),
        ("messages", [b"event: message_stop\ndata: {}\n\n"], True, b""),
        ("messages", [b"event: error\ndata: {}\n\n"], True, b""),
    ],
)
def test_end_of_a_stream(dialect: str, events: list[bytes], finished: bool, last_words: bytes | None) -> None:
    stream = EventStream(Dialect(dialect))
    out = b"".join(stream.feed(event) for event in events)
    assert out == b"".join(events)
    assert stream.finished is finished
    if last_words is not None:
        assert stream.last_words == last_words


def test_a_stream_in_pieces_of_any_size_comes_out_in_whole_events() -> None:
    text = CHOICE % 0 + b": ping\r\n\r\n" + CHOICE % 0 + END % 0 + DONE
    for size in range(1, len(text) + 1):
        stream = EventStream(Dialect.COMPLETIONS)
        pieces = [stream.feed(text[at : at + size]) for at in range(0, len(text), size)]
        assert b"".join(pieces) == text
        assert stream.finished
        assert all(piece.endswith((b"\n\n", b"\r\n\r\n")) for piece in pieces if piece), size


def test_half_an_event_stays_until_it_is_too_large() -> None:
    stream = EventStream(Dialect.COMPLETIONS)
    assert stream.feed(CHOICE % 0 + b'data: {"ch') == CHOICE % 0
    assert stream.feed(b"x" * 1000) == b""
    huge = b"y" * MOST_PENDING_BYTES
    assert stream.feed(huge) == b'data: {"ch' + b"x" * 1000 + huge
    assert not stream.finished


def test_the_last_event_may_lack_its_blank_line() -> None:
    stream = EventStream(Dialect.COMPLETIONS)
    assert stream.feed(CHOICE % 0 + DONE + b"data: more") == CHOICE % 0 + DONE
    assert stream.finished
    assert stream.last_words == b"data: more"


@pytest.mark.parametrize(
    ("path", "dialect"),
    [
        ("/v1/chat/completions", "completions"),
        ("/v1/completions", "completions"),
        ("/v1/audio/transcriptions", "completions"),
        ("/v1/responses", "responses"),
        ("/v1/responses/resp_1", "responses"),
        ("/v1/messages", "messages"),
    ],
)
def test_dialect(path: str, dialect: str) -> None:
    assert dialect_of(path) is Dialect(dialect)


def test_the_error_event_is_one_event_with_a_sentence() -> None:
    event = EventStream(Dialect.COMPLETIONS).error_event(CUT)
    assert event.endswith(b"\n\n")
    assert event.count(b"\n") == 2
    error = json.loads(event.removeprefix(b"data: "))["error"]
    assert (error["type"], error["code"]) == ("server_error", "engine_stopped")


@pytest.mark.parametrize("refusal", [NOT_READY, STOPPED, STOPPING, TOO_LARGE, TOO_MANY, CUT])
def test_a_refusal_is_a_sentence_and_says_whether_to_try_again(refusal: Refusal) -> None:
    error = json.loads(refusal.body)["error"]
    assert error["message"][0].isupper()
    assert error["message"].endswith(".")
    assert ("Retry-After" in refusal.headers) is (refusal is not TOO_LARGE)


# -- headers and health ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "to_engine", "to_client"),
    [
        ({"Host": "x", "Accept": "*/*"}, {"Host", "Accept"}, {"Host", "Accept"}),
        ({"Content-Length": "3", "Expect": "100-continue"}, set(), {"Content-Length", "Expect"}),
        ({"Connection": "close, X-One", "x-one": "1", "X-Two": "2"}, {"X-Two"}, {"X-Two"}),
        ({"Transfer-Encoding": "chunked", "TE": "gzip", "Upgrade": "h2c", "Trailer": "x"}, set(), set()),
        ({"keep-alive": "5", "Proxy-Authorization": "x"}, set(), set()),
    ],
)
def test_headers(headers: dict[str, str], to_engine: set[str], to_client: set[str]) -> None:
    assert {name for name, _ in for_engine(headers, headers.items())} == to_engine
    assert {name for name, _ in for_client(headers, headers.items())} == to_client


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (b"", None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n", None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Answer(status=200, end=38, keep=True)),
        (b"HTTP/1.1 503 No\r\ncontent-length:2\r\n\r\nno", Answer(status=503, end=39, keep=True)),
        (b"HTTP/1.1 503 No\r\ncontent-length:2\r\n\r\nn", None),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            Answer(status=200, end=57, keep=False),
        ),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", Answer(status=200, end=47, keep=False)),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", Answer(status=200, end=38, keep=False)),
    ],
)
def test_answer_of_health(data: bytes, answer: Answer | None) -> None:
    assert read_answer(data) == answer


@pytest.mark.parametrize(
    "data", [b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1\r\n\r\n", b"HTTP/1.1 ok\r\n\r\n", b"x" * 70_000]
)
def test_no_answer_of_health(data: bytes) -> None:
    with pytest.raises(ValueError, match="no "):
        read_answer(data)


# -- metrics ---------------------------------------------------------------------------------------------


def test_metrics() -> None:
    counts = Counts(sent_again=1, cut=2)
    counts.requests.update({"answered": 5, "refused": 1})
    for seconds in (0.05, 0.1, 3.0, 1000.0):
        counts.was_held(seconds)
    engines = [
        EngineNow(name="vllm", ready=True, in_flight=3),
        EngineNow(name="vllm-surge", ready=False, in_flight=0),
    ]
    text = metrics_text(counts, engines, waiting=4, held_bytes=7)
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert {
        'warmstack_gateway_requests_total{outcome="answered"}': "5",
        'warmstack_gateway_requests_total{outcome="gone"}': "0",
        "warmstack_gateway_sent_again_total": "1",
        "warmstack_gateway_cut_total": "2",
        'warmstack_gateway_hold_seconds_bucket{le="0.1"}': "2",
        'warmstack_gateway_hold_seconds_bucket{le="5.0"}': "3",
        'warmstack_gateway_hold_seconds_bucket{le="+Inf"}': "4",
        "warmstack_gateway_hold_seconds_count": "4",
        "warmstack_gateway_hold_seconds_sum": "1003.15",
        "warmstack_gateway_waiting": "4",
        "warmstack_gateway_held_bytes": "7",
        'warmstack_gateway_in_flight{engine="vllm"}': "3",
        'warmstack_gateway_engine_ready{engine="vllm"}': "1",
        'warmstack_gateway_engine_ready{engine="vllm-surge"}': "0",
    }.items() <= values.items()
