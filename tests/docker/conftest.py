"""What the tests on real containers share."""

from __future__ import annotations

import pytest

from support.waiting import free_port


@pytest.fixture
def free_ports() -> tuple[str, ...]:
    """Options of `up` for ports that nobody uses."""
    return ("--port", str(free_port()), "--webui-port", str(free_port()))
