"""A fake engine and the real Caddy in front of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fakes.engine import FakeEngine
from fakes.gateway import Gateway, StartGateway, running_gateway


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
