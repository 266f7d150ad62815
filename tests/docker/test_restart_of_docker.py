"""A restart of the Docker engine, as an upgrade of its package does it: the stack serves again by itself.

Case 16: Docker starts containers in any order.
"""

from __future__ import annotations

import json

import pytest

from support.stack import Stack, warm

pytestmark = pytest.mark.own_host


@pytest.fixture
def restarted(stack: Stack) -> Stack:
    """The stack after Docker stopped and started, with no command given to the stack itself."""
    stack.wait_ready()
    assert "has stopped" in warm("docker-stop").stderr, "not an engine that the project started"
    try:
        assert stack.warm("status", check=False).returncode != 0
    finally:
        warm("docker-start")
    return stack


def test_the_stack_serves_again_without_a_person(restarted: Stack) -> None:
    restarted.wait_ready()
    assert "Paris" in restarted.ask()
    facts = json.loads(restarted.warm("status", "--json").stdout)
    assert (facts["serving"], facts["engine"]["outcome"], facts["advice"]) == (True, "hit", [])
    assert {row["state"] for row in facts["services"]} == {"running"}
    assert facts["weight_cache"]["bytes_held"] > 250_000_000
