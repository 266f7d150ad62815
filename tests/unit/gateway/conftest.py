"""A fake engine and the real Caddy in front of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fakes.engine import FakeEngine
from fakes.gateway import Gateway, Lasting, StartGateway, running_gateway


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    with FakeEngine() as running:
        yield running


@pytest.fixture
def start_gateway(engine: FakeEngine, tmp_path: Path) -> Iterator[StartGateway]:
    """Start the gateway before the engine fixture, with settings as in the Compose file."""
    with ExitStack() as running:

        def start(*, upstreams: str | None = None, **settings: str) -> Gateway:
            return running.enter_context(
                running_gateway(tmp_path, upstreams=upstreams or engine.address, **settings)
            )

        yield start


@pytest.fixture
def gateway(start_gateway: StartGateway) -> Gateway:
    return start_gateway(WARMSTACK_HOLD="10s")


@pytest.fixture(scope="session")
def all_lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lasting]:
    with ExitStack() as running:

        def start(**settings: str) -> Gateway:
            return running.enter_context(running_gateway(tmp_path_factory.mktemp("gateway"), **settings))

        first, second = (running.enter_context(FakeEngine()) for _ in range(2))
        yield Lasting(first, second, start)


@pytest.fixture
def lasting(all_lasting: Lasting) -> Lasting:
    for engine in (all_lasting.first, all_lasting.second):
        engine.received.clear()
    return all_lasting
