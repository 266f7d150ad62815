"""The first engine is gone in one way or another: the second answers within a fraction of a second."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator

import pytest

from fakes.engine import FakeEngine, chat_body
from fakes.gateway import Answer, Gateway, StartGateway
from fakes.raw_engine import RawEngine, read_request
from support.waiting import wait_until

CHAT = "/v1/chat/completions"
FRACTION = 0.5
"""Seconds; what a person does not notice, on a busy machine."""


def ask(gateway: Gateway) -> tuple[Answer, float]:
    started = time.monotonic()
    answer = gateway.ask("POST", CHAT, body=chat_body())
    return answer, time.monotonic() - started


def start_ready(start: StartGateway, *addresses: str, **settings: str) -> Gateway:
    """A gateway that has found all of them ready."""
    gateway = start(upstreams=" ".join(addresses), WARMSTACK_HOLD="10s", **settings)
    wait_until(
        lambda: {mark["name"] for mark in gateway.marks("engine") if mark["ready"]},
        wanted=lambda names: names >= set(addresses),
        seconds=5,
        what="all engines are ready",
    )
    return gateway


def test_killed(start_gateway: StartGateway, engine: FakeEngine) -> None:
    with FakeEngine() as first:
        gateway = start_ready(start_gateway, first.address, engine.address)
        assert ask(gateway)[0].status == 200
        first.die()
        answer, seconds = ask(gateway)
        assert answer.status == 200
        assert seconds < FRACTION
        assert (len(first.chats()), len(engine.chats())) == (1, 1)


def test_listening_no_more(start_gateway: StartGateway, engine: FakeEngine) -> None:
    """As an engine that ends in good order: what is connected goes on, so /health says nothing yet."""
    with RawEngine() as first:
        gateway = start_ready(start_gateway, first.address, engine.address)
        first.stop_listening()
        answer, seconds = ask(gateway)
        assert answer.status == 200
        assert seconds < FRACTION
        assert first.received == []


@pytest.mark.parametrize("reset", [True, False], ids=["reset", "closed"])
def test_hanging_up(start_gateway: StartGateway, engine: FakeEngine, reset: bool) -> None:
    with RawEngine(reset=reset) as first:
        gateway = start_ready(start_gateway, first.address, engine.address)
        answer, seconds = ask(gateway)
        assert answer.status == 200
        assert seconds < FRACTION
        assert (len(first.received), len(engine.chats())) == (1, 1)
        assert [mark["times"] for mark in gateway.marks("request-dropped")] == [1]


def test_a_black_hole(start_gateway: StartGateway, engine: FakeEngine) -> None:
    """Packets vanish, as those to a container that was cut off. /health on the kept connection is fine."""
    with contextlib.ExitStack() as open_ones:
        listener = open_ones.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        address = listener.getsockname()
        gateway = start_gateway(upstreams=f"127.0.0.1:{address[1]} {engine.address}")
        health, _ = listener.accept()
        open_ones.enter_context(health)

        def answer_health() -> None:
            read_request(health)
            health.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

        answer_health()
        # The kernel takes one connection that nobody accepts; the next ones get no answer to their SYN.
        for _ in range(2):
            filler = open_ones.enter_context(socket.socket())
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect(address)
        wait_until(lambda: len(gateway.marks("engine")) >= 2, seconds=5, what="both are ready")
        answer, seconds = ask(gateway)
        assert answer.status == 200
        assert 0.9 < seconds < 1.0 + FRACTION, "one time-out for a connection"
        answer, seconds = ask(gateway)
        assert answer.status == 200
        assert seconds < FRACTION, "the next ones know"


def test_frozen(start_gateway: StartGateway, engine: FakeEngine) -> None:
    """It is connected and says nothing any more: after 2 s nothing new goes there."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        frozen = f"127.0.0.1:{listener.getsockname()[1]}"
        gateway = start_gateway(upstreams=f"{frozen} {engine.address}")
        health, _ = listener.accept()
        with health:
            read_request(health)
            health.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            wait_until(
                lambda: [mark["ready"] for mark in gateway.marks("engine") if mark["name"] == frozen],
                wanted=lambda states: states == [True, False],
                seconds=8,
                what="the frozen engine was ready and is not any more",
            )
            answer, seconds = ask(gateway)
        assert answer.status == 200
        assert seconds < FRACTION


def test_an_engine_that_comes_back_first_in_the_order_serves_again(
    start_gateway: StartGateway, engine: FakeEngine
) -> None:
    with FakeEngine() as first:
        gateway = start_ready(start_gateway, first.address, engine.address)
        first.die()
        assert ask(gateway)[0].status == 200
        first.start()
        wait_until(lambda: ask(gateway) and first.chats(), seconds=5, what="the first engine serves again")


@pytest.fixture
def unready() -> Iterator[FakeEngine]:
    with FakeEngine() as loading:
        loading.behave(loading=True)
        yield loading


def test_one_that_loads_is_passed_over(
    start_gateway: StartGateway, engine: FakeEngine, unready: FakeEngine
) -> None:
    gateway = start_gateway(upstreams=f"{unready.address} {engine.address}", WARMSTACK_HOLD="10s")
    for _ in range(3):
        answer, seconds = ask(gateway)
        assert answer.status == 200
    assert seconds < FRACTION
    assert unready.chats() == []
    assert gateway.ask("GET", "/ready").status == 200
