"""Requests wait while no engine is ready, and are answered or fail with a sentence (cases 29 and 35)."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import pytest

from fakes.engine import FakeEngine, chat_body
from fakes.gateway import Answer, Gateway, StartGateway
from support.waiting import wait_until

T = TypeVar("T")
PATH = "/v1/chat/completions"


def post(gateway: Gateway, body: bytes) -> Answer:
    return gateway.ask("POST", PATH, body=body, headers={"Content-Type": "application/json"})


def wait_until_held(gateway: Gateway, waiting: list[Future[Answer]]) -> None:
    """The clients run, no engine is ready for them, and none of them was answered."""
    seen(lambda: all(future.running() for future in waiting), what="the clients run")
    for _ in range(3):
        assert gateway.ask("GET", "/ready").status == 503
    assert not any(future.done() for future in waiting)


def seen(look: Callable[[], T], *, wanted: Callable[[T], bool] = bool, what: str) -> T:
    return wait_until(look, wanted=wanted, seconds=10, what=what)


@pytest.mark.parametrize("size_bytes", [0, 20_000_000], ids=["small", "20 MB"])
def test_a_post_is_held_and_arrives_whole(gateway: Gateway, engine: FakeEngine, size_bytes: int) -> None:
    engine.die()
    body = chat_body(size_bytes=size_bytes)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(post, gateway, body)
        wait_until_held(gateway, [waiting])
        engine.start()
        answer = waiting.result()
    assert answer.status == 200
    assert answer.json["choices"][0]["message"]["content"] == "The capital of France is Paris."
    assert [request.body for request in engine.chats()] == [body]


def test_many_clients_wait_and_each_costs_one_engine_call(
    start_gateway: StartGateway, engine: FakeEngine
) -> None:
    gateway = start_gateway(WARMSTACK_HOLD="30s")
    engine.die()
    sizes = range(1000, 1200)
    with ThreadPoolExecutor(len(sizes)) as pool:
        waiting = [pool.submit(post, gateway, chat_body(size_bytes=size)) for size in sizes]
        state = seen(
            lambda: gateway.route("show"),
            wanted=lambda s: s["waiting"] == len(sizes),
            what="all of them wait",
        )
        assert state["held_bytes"] == sum(sizes)
        engine.start()
        assert {future.result().status for future in waiting} == {200}
    assert sorted(len(request.body) for request in engine.chats()) == list(sizes)
    assert nothing_is_left(gateway)


def test_more_than_may_wait_are_refused_at_once(start_gateway: StartGateway, engine: FakeEngine) -> None:
    gateway = start_gateway(WARMSTACK_HOLD="30s", WARMSTACK_MOST_WAITING="2")
    engine.die()
    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(post, gateway, chat_body()) for _ in range(2)]
        seen(lambda: gateway.route("show")["waiting"] == 2, what="two wait")
        answer = post(gateway, chat_body())
        assert (answer.status, answer.error["code"]) == (503, "too_many_waiting")
        assert answer.headers["Retry-After"] == "5"
        engine.start()
        assert {future.result().status for future in waiting} == {200}
    assert len(engine.chats()) == 2
    assert nothing_is_left(gateway)


def test_bodies_in_memory_have_a_bound(start_gateway: StartGateway, engine: FakeEngine) -> None:
    gateway = start_gateway(WARMSTACK_HOLD="30s", WARMSTACK_MOST_HELD_BYTES="25000000")
    engine.die()
    body = chat_body(size_bytes=20_000_000)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(post, gateway, body)
        seen(lambda: gateway.route("show")["waiting"] == 1, what="the first one waits")
        answer = post(gateway, body)
        assert (answer.status, answer.error["code"]) == (503, "too_many_waiting")
        small = pool.submit(post, gateway, chat_body())
        seen(lambda: gateway.route("show")["waiting"] == 2, what="a small one still has room")
        engine.start()
        assert {waiting.result().status, small.result().status} == {200}
    assert [request.body for request in engine.chats() if len(request.body) > 1000] == [body]
    assert nothing_is_left(gateway)


def nothing_is_left(gateway: Gateway) -> bool:
    state = seen(
        lambda: gateway.route("show"),
        wanted=lambda s: (s["waiting"], s["held_bytes"]) == (0, 0),
        what="nothing waits and nothing is kept",
    )
    return all(engine["in_flight"] == 0 for engine in state["engines"].values())


def test_the_list_of_models_is_held_too(gateway: Gateway, engine: FakeEngine) -> None:
    engine.die()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(gateway.ask, "GET", "/v1/models")
        wait_until_held(gateway, [waiting])
        engine.start()
        assert waiting.result().status == 200


def test_an_engine_that_is_not_healthy_gets_nothing(gateway: Gateway, engine: FakeEngine) -> None:
    engine.behave(loading=True)
    seen(lambda: gateway.ask("GET", "/ready").status == 503, what="/ready says 503")
    time.sleep(0.7)  # one interval of the gateway's own look at the engine
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(post, gateway, chat_body())
        wait_until_held(gateway, [waiting])
        assert engine.chats() == []
        engine.behave(loading=False)
        assert waiting.result().status == 200


def test_when_the_hold_ends_a_person_reads_why(start_gateway: StartGateway, engine: FakeEngine) -> None:
    gateway = start_gateway(WARMSTACK_HOLD="1s")
    engine.die()
    start = time.monotonic()
    answer = post(gateway, chat_body())
    assert 0.9 < time.monotonic() - start < 3
    assert answer.status == 503
    assert answer.headers["Retry-After"] == "5"
    assert (answer.error["type"], answer.error["code"]) == ("service_unavailable", "engine_not_ready")


def test_a_hold_of_nothing_fails_at_once(start_gateway: StartGateway, engine: FakeEngine) -> None:
    gateway = start_gateway(WARMSTACK_HOLD="0s")
    engine.die()
    answer = post(gateway, chat_body())
    assert (answer.status, answer.error["code"]) == (503, "engine_not_ready")


def test_the_hold_bounds_the_wait_and_not_the_answer(start_gateway: StartGateway, engine: FakeEngine) -> None:
    gateway = start_gateway(WARMSTACK_HOLD="300ms")
    engine.behave(token_seconds=0.15)
    assert post(gateway, chat_body()).status == 200


def test_a_client_that_left_is_not_sent_to_the_engine(gateway: Gateway, engine: FakeEngine) -> None:
    engine.die()
    seen(lambda: gateway.ask("GET", "/ready").status == 503, what="/ready says 503")
    left = gateway.connect()
    left.request("POST", PATH, body=chat_body(size_bytes=5000))
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(post, gateway, chat_body(size_bytes=6000))
        wait_until_held(gateway, [waiting])
        left.close()
        wait_until_held(gateway, [waiting])
        engine.start()
        assert waiting.result().status == 200
    lines = seen(
        lambda: [x for x in gateway.log_lines() if x.get("bytes_read") == 5000], what="its end is logged"
    )
    assert lines[0]["status"] == 499
    assert nothing_is_left(gateway)
    assert [len(request.body) for request in engine.chats()] == [6000]


def test_a_request_the_engine_dropped_is_sent_once_more(gateway: Gateway, engine: FakeEngine) -> None:
    engine.behave(die_after_tokens=0)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(post, gateway, chat_body())
        seen(lambda: not engine.alive, what="the engine died of the request")
        engine.behave(die_after_tokens=None)
        engine.start()
        assert waiting.result().status == 200
    assert len(engine.chats()) == 2


def test_a_request_that_kills_engines_kills_two_at_most(gateway: Gateway, engine: FakeEngine) -> None:
    engine.behave(die_after_tokens=0)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(post, gateway, chat_body())
        seen(lambda: not engine.alive, what="the engine died of the request")
        wait_until_held(gateway, [waiting])
        engine.start()
        answer = waiting.result()
    assert (answer.status, answer.error["code"]) == (503, "engine_stopped")
    assert answer.headers["Retry-After"] == "5"
    engine.behave(die_after_tokens=None)
    engine.start()
    assert gateway.ask("GET", "/v1/models").status == 200
    assert len(engine.chats()) == 2


def test_an_engine_on_a_kept_connection_that_died_is_no_error(gateway: Gateway, engine: FakeEngine) -> None:
    for _ in range(3):
        assert post(gateway, chat_body()).status == 200
        engine.die()
        engine.start()


@pytest.mark.parametrize(
    "order", ["{engine} no-such-name.invalid:8000", "no-such-name.invalid:8000 {engine}"]
)
def test_a_name_that_does_not_resolve_hurts_nobody(
    start_gateway: StartGateway, engine: FakeEngine, order: str
) -> None:
    gateway = start_gateway(upstreams=order.format(engine=engine.address), WARMSTACK_HOLD="10s")
    for _ in range(5):
        assert post(gateway, chat_body()).status == 200
        assert gateway.ask("GET", "/ready").status == 200


def test_the_second_engine_serves_when_the_first_is_gone(
    start_gateway: StartGateway, engine: FakeEngine
) -> None:
    with FakeEngine() as surge:
        gateway = start_gateway(upstreams=f"{engine.address} {surge.address}", WARMSTACK_HOLD="10s")
        assert post(gateway, chat_body()).status == 200
        engine.die()
        assert post(gateway, chat_body()).status == 200
        assert gateway.ask("GET", "/ready").status == 200
        assert (len(engine.chats()), len(surge.chats())) == (1, 1)
