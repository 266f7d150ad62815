"""The same over HTTP/2 in clear text, as a proxy that ends TLS speaks it: a second Caddy is that proxy."""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from fakes.engine import FakeEngine, chat_body
from fakes.gateway import Gateway, caddy_binary
from support.waiting import free_port, wait_until

CHAT = "/v1/chat/completions"
PROXY = """{{
	admin off
	auto_https off
	persist_config off
}}
http://127.0.0.1:{port} {{
	reverse_proxy h2c://127.0.0.1:{gateway}
}}
"""


@pytest.fixture
def over_http2(gateway: Gateway, tmp_path: Path) -> Iterator[Gateway]:
    """The gateway as its clients see it through the proxy."""
    port = free_port()
    file = tmp_path / "Proxyfile"
    file.write_text(PROXY.format(port=port, gateway=gateway.port))
    command = [caddy_binary(), "run", "--config", str(file), "--adapter", "caddyfile"]
    environment = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "proxy")}
    with (
        (tmp_path / "proxy.log").open("wb") as log,
        subprocess.Popen(command, env=environment, stdout=log, stderr=log) as proxy,
    ):
        try:
            through = replace(gateway, port=port)
            wait_until(
                lambda: through.ask("GET", "/health").status == 200, seconds=15, what="the proxy answers"
            )
            yield through
        finally:
            proxy.kill()
    seen = {line["request"]["proto"] for line in gateway.log_lines() if "request" in line}
    assert seen == {"HTTP/2.0"}


@pytest.mark.parametrize("size_bytes", [0, 20_000_000], ids=["small", "20 MB"])
def test_a_post_is_held_and_arrives_whole(over_http2: Gateway, engine: FakeEngine, size_bytes: int) -> None:
    engine.die()
    body = chat_body(size_bytes=size_bytes)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(over_http2.ask, "POST", CHAT, body=body)
        wait_until(lambda: over_http2.route("show")["waiting"] == 1, seconds=10, what="it waits")
        engine.start()
        assert waiting.result().status == 200
    assert [request.body for request in engine.chats()] == [body]


def test_a_held_stream_arrives_word_by_word(over_http2: Gateway, engine: FakeEngine) -> None:
    engine.die()
    engine.behave(token_seconds=0.1)
    with contextlib.closing(over_http2.connect()) as connection, ThreadPoolExecutor() as pool:
        connection.request("POST", CHAT, body=chat_body(stream=True))
        waiting = pool.submit(connection.getresponse)
        wait_until(lambda: over_http2.route("show")["waiting"] == 1, seconds=10, what="it waits")
        engine.start()
        times = [time.monotonic() for line in waiting.result() if b'"content"' in line]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert len(gaps) == len(engine.behaviour.tokens) - 1
    assert min(gaps) > 0.03, gaps


def test_many_on_one_connection(over_http2: Gateway, engine: FakeEngine) -> None:
    engine.die()
    with ThreadPoolExecutor(100) as pool:
        waiting = [pool.submit(over_http2.ask, "POST", CHAT, body=chat_body()) for _ in range(100)]
        wait_until(lambda: over_http2.route("show")["waiting"] == 100, seconds=10, what="all of them wait")
        engine.start()
        assert {future.result().status for future in waiting} == {200}


def test_too_large(over_http2: Gateway, engine: FakeEngine) -> None:
    body = chat_body(size_bytes=21_000_000)
    for sent in (body, iter([body[:1000], body[1000:]])):
        answer = over_http2.ask("POST", CHAT, body=sent)
        assert (answer.status, answer.error["code"]) == (413, "request_too_large")
    assert engine.chats() == []


def test_a_client_that_leaves_is_not_sent_to_the_engine(over_http2: Gateway, engine: FakeEngine) -> None:
    engine.die()
    with contextlib.closing(over_http2.connect()) as left:
        left.request("POST", CHAT, body=chat_body())
        wait_until(lambda: over_http2.route("show")["waiting"] == 1, seconds=10, what="it waits")
    wait_until(lambda: over_http2.route("show")["waiting"] == 0, seconds=10, what="it left")
    engine.start()
    assert over_http2.ask("GET", "/v1/models").status == 200
    assert engine.chats() == []


def test_a_cut_stream_ends_with_a_sentence(over_http2: Gateway, engine: FakeEngine) -> None:
    engine.behave(die_after_tokens=3, token_seconds=0.01)
    answer = over_http2.ask("POST", CHAT, body=chat_body(stream=True))
    *before, last = answer.body.strip().split(b"\n\n")
    assert len(before) == 3
    assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "engine_stopped"


def test_a_client_that_stops_reading_stops_the_engine(over_http2: Gateway, engine: FakeEngine) -> None:
    engine.behave(tokens=("word ",) * 1000, token_seconds=0.02)
    with contextlib.closing(over_http2.connect()) as connection:
        connection.request("POST", CHAT, body=chat_body(stream=True))
        assert connection.getresponse().readline().startswith(b"data: ")
    wait_until(lambda: engine.cancelled == 1, seconds=5, what="the engine saw the client go")
