"""What the tests on real containers share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from support.stack import docker
from support.waiting import free_port


@pytest.fixture
def free_ports() -> tuple[str, ...]:
    """Options of `up` for ports that nobody uses."""
    return ("--port", str(free_port()), "--webui-port", str(free_port()))


@pytest.fixture
def nobody() -> Iterator[str]:
    """A project name of which no container may ever exist."""
    name = f"wstest-refused{os.getpid()}"
    yield name
    assert docker("ps", "-aq", "--filter", f"label=com.docker.compose.project={name}") == ""
    assert docker("network", "ls", "-q", "--filter", f"label=com.docker.compose.project={name}") == ""
