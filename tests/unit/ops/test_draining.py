"""Emptying engines that will go: the real gateway, engines that work on something, and what clients get."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fakes.engine import FakeEngine, chat_body
from fakes.gateway import Answer, Gateway, both_ready, running_gateway
from support.waiting import wait_until
from support.wishes import CPU, spec_of
from warmops.changes import Container
from warmops.docker import Completed, Docker
from warmops.draining import Draining
from warmops.project import Project, Remembered

CHAT = "/v1/chat/completions"
GATEWAY = Container(service="gateway", id="g", state="running", config_hash="", image_id="", started_at=0.0)


@dataclass
class Stack:
    """Two engines behind the gateway, under the names that a stack has."""

    gateway: Gateway
    vllm: FakeEngine
    surge: FakeEngine
    pool: ThreadPoolExecutor

    @property
    def project(self) -> Project:
        names = {self.vllm.address: "vllm", self.surge.address: "vllm-surge"}
        return _Project(name="p", docker=_Docker(gateway=self.gateway, names=names))

    def ask(self, **wish: Any) -> Future[Answer]:
        return self.pool.submit(self.gateway.ask, "POST", CHAT, body=chat_body(**wish))

    def stream(self) -> Future[Answer]:
        """A stream of some seconds that is under way."""
        tokens = self.vllm.behaviour.tokens
        self.vllm.behave(token_seconds=0.1, tokens=tokens if len(tokens) > 20 else ("word ",) * 20)
        asked = self.ask(stream=True)
        wait_until(lambda: self.vllm.mid_stream, seconds=10, what="a stream is under way")
        return asked


@dataclass(frozen=True, kw_only=True)
class _Docker(Docker):
    """Runs in the gateway of this test what would run in its container."""

    gateway: Gateway
    names: dict[str, str] = field(default_factory=dict)

    def execute(self, container: str, *argv: str, **how: Any) -> Completed:
        assert (container, argv[0]) == ("g", "warmstack-gateway-route")
        addresses = {name: address for address, name in self.names.items()}
        done = self.gateway.route_command(*(addresses.get(word, word) for word in argv[1:]))
        said = done.stdout
        for address, name in self.names.items():
            said = said.replace(f'"{address}"', f'"{name}"')
        return Completed(command=argv, returncode=done.returncode, stdout=said, stderr=done.stderr)


class _Project(Project):
    def container(self, service: str) -> Container | None:
        return GATEWAY if service == "gateway" else None


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    with ExitStack() as running:
        vllm, surge = (running.enter_context(FakeEngine()) for _ in range(2))
        gateway = running.enter_context(
            running_gateway(tmp_path, upstreams=f"{vllm.address} {surge.address}", WARMSTACK_HOLD="20s")
        )
        both_ready(gateway)
        pool = running.enter_context(ThreadPoolExecutor())
        yield Stack(gateway=gateway, vllm=vllm, surge=surge, pool=pool)


@pytest.fixture
def alone(stack: Stack) -> Stack:
    """The second engine is not there."""
    stack.surge.die()
    wait_until(lambda: not ready(stack, stack.surge), seconds=5, what="the gateway saw that it ended")
    return stack


def ready(stack: Stack, engine: FakeEngine) -> bool:
    return bool(stack.gateway.route("show")["engines"][engine.address]["ready"])


def settings(*, drain: int = 10, restart_drain: int = 10) -> Remembered:
    return Remembered(
        environment="cpu",
        overrides={},
        model="m",
        served_model="m",
        identity="",
        platform="cpu",
        ranks=1,
        gateway_url="",
        webui_url=None,
        needs_api_key=False,
        drain_seconds=drain,
        restart_drain_seconds=restart_drain,
    )


def test_what_runs_finishes_and_what_is_new_is_held(alone: Stack) -> None:
    stream = alone.stream()
    with Draining(alone.project, settings(), ("vllm",)) as drained:
        assert stream.result(timeout=0).body.endswith(b"data: [DONE]\n\n")
        held = alone.ask()
        wait_until(lambda: alone.gateway.route("show")["waiting"] == 1, seconds=5, what="it is held")
        alone.vllm.die()
        drained.gone()
        assert alone.gateway.route("show")["paused_seconds"] == 0
        alone.vllm.start()
        assert held.result().status == 200
    assert (drained.requests, drained.left, drained.cut) == (1, 0, 0)
    assert 0 < drained.ended_at - drained.begun_at < 10


def test_what_outlives_the_time_is_cut_and_counted(alone: Stack) -> None:
    alone.vllm.behave(tokens=("word ",) * 500)
    stream = alone.stream()
    with Draining(alone.project, settings(restart_drain=1), ("vllm",)) as drained:
        assert not stream.done()
        alone.vllm.die()
        assert b"engine_stopped" in stream.result().body
        drained.gone()
    data = drained.as_data()
    assert (data["requests"], data["left"], data["cut_streams"]) == (1, 1, 1)
    assert 1 <= data["seconds"] < 5


def test_with_a_second_engine_nobody_is_held(stack: Stack) -> None:
    stream = stack.stream()
    with Draining(stack.project, settings(), ("vllm",)) as drained:
        assert stream.result(timeout=0).body.endswith(b"data: [DONE]\n\n")
        assert stack.ask().result().status == 200
        assert len(stack.surge.chats()) == 1
        stack.vllm.die()
        drained.gone()
        stack.vllm.start()
        wait_until(lambda: ready(stack, stack.vllm), seconds=5, what="it is back")
        drained.back()
        stack.vllm.behave(token_seconds=0.0)
        assert stack.ask().result().status == 200
    assert (len(stack.vllm.chats()), len(stack.surge.chats())) == (2, 1)
    assert (drained.requests, drained.left, drained.cut) == (1, 0, 0)


def test_a_second_engine_that_dies_meanwhile_makes_it_a_pause(stack: Stack) -> None:
    stack.vllm.behave(tokens=("word ",) * 30)
    stream = stack.stream()
    dying = threading.Timer(1.0, stack.surge.die)
    dying.start()
    with Draining(stack.project, settings(), ("vllm",)):
        assert stream.result(timeout=0).body.endswith(b"data: [DONE]\n\n")
        assert stack.gateway.route("show")["paused_seconds"] > 0
    assert stack.gateway.route("show")["paused_seconds"] == 0


def test_a_failure_in_the_middle_lets_requests_through_again(alone: Stack) -> None:
    draining = Draining(alone.project, settings(), ("vllm",)).__enter__()
    assert alone.gateway.route("show")["paused_seconds"] > 0
    draining.__exit__(RuntimeError, RuntimeError("a bug"), None)
    assert alone.gateway.route("show")["paused_seconds"] == 0
    assert alone.ask().result().status == 200


@pytest.mark.parametrize(("engines", "restart_drain"), [((), 10), (("vllm-surge",), 10), (("vllm",), 0)])
def test_where_nothing_can_be_waited_for_nothing_is_paused(
    alone: Stack, engines: tuple[str, ...], restart_drain: int
) -> None:
    with Draining(alone.project, settings(restart_drain=restart_drain), engines) as drained:
        assert alone.gateway.route("show")["paused_seconds"] == 0
        assert alone.ask().result().status == 200
        drained.gone()
    assert alone.gateway.marks("pause") == []


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (CPU, 60),
        (CPU + "gateway: {hold_seconds: 31}\n", 15),
        (CPU + "gateway: {hold_seconds: 0}\n", 0),
        (CPU + "engine: {drain_seconds: 5}\n", 5),
        (CPU + "engine: {drain_seconds: 0}\n", 0),
    ],
)
def test_half_of_the_hold_is_left_for_the_start(text: str, seconds: int) -> None:
    assert spec_of(text).restart_drain_seconds == seconds
