"""Which engine new requests go to: asked and set by the command that the orchestration runs."""

from __future__ import annotations

import json
import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fakes.engine import FakeEngine, chat_body
from fakes.gateway import Gateway, Lasting, StartGateway, both_ready
from support.waiting import wait_until

CHAT = "/v1/chat/completions"


@pytest.fixture
def surge() -> Any:
    with FakeEngine() as running:
        yield running


@pytest.fixture
def two(start_gateway: StartGateway, engine: FakeEngine, surge: FakeEngine) -> Gateway:
    gateway = start_gateway(upstreams=f"{engine.address} {surge.address}", WARMSTACK_HOLD="10s")
    both_ready(gateway)
    return gateway


def test_show(two: Gateway, engine: FakeEngine, surge: FakeEngine) -> None:
    state = two.route("show")
    since = {name: fields.pop("since") for name, fields in state["engines"].items()}
    assert state == {
        "schema": 1,
        "order": [engine.address, surge.address],
        "engines": {name: {"ready": True, "in_flight": 0} for name in (engine.address, surge.address)},
        "waiting": 0,
        "held_bytes": 0,
        "paused_seconds": 0.0,
        "cut": 0,
    }
    assert all(text.endswith("+00:00") for text in since.values())


def test_set_moves_new_requests_and_running_ones_stay(
    two: Gateway, engine: FakeEngine, surge: FakeEngine
) -> None:
    engine.behave(token_seconds=0.1)
    with ThreadPoolExecutor() as pool:
        running = pool.submit(two.ask, "POST", CHAT, body=chat_body())
        wait_until(lambda: engine.chats(), seconds=5, what="the first engine has the request")
        state = two.route("set", surge.address, engine.address)
        assert state["order"] == [surge.address, engine.address]
        assert state["engines"][engine.address]["in_flight"] == 1
        assert state["engines"][surge.address]["in_flight"] == 0
        assert two.ask("POST", CHAT, body=chat_body()).status == 200
        assert len(surge.chats()) == 1
        assert running.result().status == 200
    assert len(engine.chats()) == 1
    assert two.route("show")["engines"][engine.address]["in_flight"] == 0


def test_the_order_is_a_preference_and_no_ban(two: Gateway, engine: FakeEngine, surge: FakeEngine) -> None:
    two.route("set", surge.address)
    surge.die()
    assert two.ask("POST", CHAT, body=chat_body()).status == 200
    assert len(engine.chats()) == 1


def test_the_order_outlives_the_gateway(
    start_gateway: StartGateway, engine: FakeEngine, surge: FakeEngine
) -> None:
    upstreams = f"{engine.address} {surge.address}"
    first = start_gateway(upstreams=upstreams)
    first.route("set", surge.address)
    assert first.process is not None
    first.process.terminate()
    first.process.wait(10)
    again = start_gateway(upstreams=upstreams)
    assert again.route("show")["order"] == [surge.address, engine.address]
    both_ready(again)
    assert again.ask("POST", CHAT, body=chat_body()).status == 200
    assert (len(engine.chats()), len(surge.chats())) == (0, 1)


@pytest.mark.parametrize("kept", ["", "garbage", "[]", '{"order": 3}', '{"order": ["gone:1"]}', "\0\xff"])
def test_a_kept_order_that_is_none_is_left_alone(
    start_gateway: StartGateway, engine: FakeEngine, tmp_path: Path, kept: str
) -> None:
    (tmp_path / "route.json").write_bytes(kept.encode("latin-1"))
    assert start_gateway().route("show")["order"] == ["127.0.0.1"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "say `show`"),
        (("shw",), "say `show`"),
        (("show", "more"), "say `show`"),
        (("set",), "no engine is named; there are {first}, {second}"),
        (("set", "nobody"), "there is no engine nobody; there are {first}, {second}"),
        (("set", "{first}", "{first}"), "{first} is named twice"),
        (("pause",), "say `show`"),
        (("pause", "0"), "0 is no time for a pause: whole seconds from 1 to 60"),
        (("pause", "61"), "61 is no time for a pause"),
        (("pause", "-1"), "-1 is no time for a pause"),
        (("pause", "1.5"), "1.5 is no time for a pause"),
        (("resume", "now"), "say `show`"),
        (("x" * 5000,), "one line of text is expected"),
    ],
)
def test_wrong_words_change_nothing(lasting: Lasting, words: tuple[str, ...], sentence: str) -> None:
    gateway = lasting.gateway()
    names = {"first": lasting.first.address, "second": lasting.second.address}
    done = gateway.route_command(*(word.format(**names) for word in words))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {sentence.format(**names)}")
    assert gateway.route("show")["order"] == list(names.values())


def test_a_pause_holds_what_is_new_and_lets_the_rest_finish(gateway: Gateway, engine: FakeEngine) -> None:
    engine.behave(token_seconds=0.1, tokens=("word ",) * 40)  # longer than two commands take
    with ThreadPoolExecutor() as pool:
        running = pool.submit(gateway.ask, "POST", CHAT, body=chat_body(stream=True))
        wait_until(lambda: engine.mid_stream, seconds=5, what="a stream is under way")
        state = gateway.route("pause", "30")
        assert 29 < state["paused_seconds"] <= 30
        assert state["engines"]["127.0.0.1"]["in_flight"] == 1
        held = pool.submit(gateway.ask, "POST", CHAT, body=chat_body())
        wait_until(lambda: gateway.route("show")["waiting"] == 1, seconds=5, what="it is held")
        assert running.result().body.endswith(b"data: [DONE]\n\n")
        engine.behave(token_seconds=0.0)
        state = gateway.route("pause", "30")
        assert (state["engines"]["127.0.0.1"]["in_flight"], state["waiting"]) == (0, 1)
        assert len(engine.chats()) == 1
        assert gateway.ask("GET", "/ready").status == 200
        assert gateway.route("resume")["paused_seconds"] == 0
        assert held.result().status == 200
    assert [mark["reason"] for mark in gateway.marks("resume")] == ["asked for"]
    assert len(gateway.marks("pause")) == 1


def test_a_pause_that_nobody_renews_ends_by_itself(gateway: Gateway, engine: FakeEngine) -> None:
    gateway.route("pause", "60")
    gateway.route("pause", "1")
    begun = time.monotonic()
    assert gateway.ask("POST", CHAT, body=chat_body()).status == 200
    assert 0.5 < time.monotonic() - begun < 5
    assert [mark["reason"] for mark in gateway.marks("resume")] == ["its time is over"]


def test_the_end_of_a_pause_sends_nothing_where_no_engine_is(gateway: Gateway, engine: FakeEngine) -> None:
    gateway.route("pause", "30")
    engine.die()
    with ThreadPoolExecutor() as pool:
        held = pool.submit(gateway.ask, "POST", CHAT, body=chat_body())
        wait_until(lambda: gateway.route("show")["waiting"] == 1, seconds=5, what="it waits")
        gateway.route("resume")
        assert gateway.route("show")["waiting"] == 1
        engine.start()
        assert held.result().status == 200


def test_an_engine_that_becomes_ready_ends_a_pause(gateway: Gateway, engine: FakeEngine) -> None:
    gateway.route("pause", "60")
    engine.die()
    with ThreadPoolExecutor() as pool:
        held = pool.submit(gateway.ask, "POST", CHAT, body=chat_body())
        wait_until(lambda: gateway.route("show")["waiting"] == 1, seconds=5, what="it waits")
        engine.start()
        assert held.result().status == 200
    assert [mark["reason"] for mark in gateway.marks("resume")] == ["an engine has become ready"]


def test_how_many_answers_were_cut_is_told(gateway: Gateway, engine: FakeEngine) -> None:
    engine.behave(die_after_tokens=3)
    gateway.ask("POST", CHAT, body=chat_body(stream=True))
    assert gateway.route("show")["cut"] == 1


def test_an_order_that_cannot_be_kept_does_not_count(
    two: Gateway, engine: FakeEngine, surge: FakeEngine
) -> None:
    (two.folder / "route.new").mkdir()
    done = two.route_command("set", surge.address)
    assert done.returncode == 3
    assert "cannot be kept" in done.stderr
    assert two.route("show")["order"] == [engine.address, surge.address]


def test_no_gateway_is_one_sentence(tmp_path: Path) -> None:
    done = Gateway(port=0, log=tmp_path / "log", folder=tmp_path).route_command("show")
    assert done.returncode == 3
    assert done.stderr.startswith("error: the gateway does not answer on its control socket")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("sent", [b"", b"\n", b"\xff\xfe\n", os.urandom(100_000), b"show"])
def test_garbage_on_the_control_socket_hurts_nobody(lasting: Lasting, sent: bytes) -> None:
    gateway = lasting.gateway()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(str(gateway.folder / "control.sock"))
        try:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(4096)
        except OSError:  # more than it wants to read: it hung up
            answer = b""
    assert not answer or "error" in json.loads(answer)
    assert gateway.route("show")["schema"] == 1


def test_sockets_belong_to_the_gateway_alone(gateway: Gateway) -> None:
    modes = {name: (gateway.folder / name).stat().st_mode & 0o777 for name in ("relay.sock", "control.sock")}
    assert modes == {"relay.sock": 0o600, "control.sock": 0o600}
