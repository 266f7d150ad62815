"""A second `up` of what runs already. It is timed."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest

from support.stack import Stack, identities


@dataclass(frozen=True, kw_only=True)
class Again:
    """An `up` of what runs already."""

    seconds: float
    stdout: str
    stderr: str
    touched: bool


@pytest.fixture(scope="module")
def second_ups(stack: Stack) -> tuple[Again, ...]:
    found = []
    for _ in range(3):
        before, begun = identities(stack), time.monotonic()
        done = stack.up()
        seconds = time.monotonic() - begun
        touched = identities(stack) != before
        found.append(Again(seconds=seconds, stdout=done.stdout, stderr=done.stderr, touched=touched))
    return tuple(found)


def test_a_second_up_touches_nothing_and_is_quick(stack: Stack, second_ups: tuple[Again, ...]) -> None:
    """Case 30. The quickest of three counts: a neighbour of the machine may slow one of them down."""
    for one in second_ups:
        assert not one.touched
        assert "Paris" in one.stdout
        assert f"chat      {stack.webui_url}\n" in one.stdout
    assert min(one.seconds for one in second_ups) < 5


def test_effective_settings_say_where_they_come_from(stack: Stack, second_ups: tuple[Again, ...]) -> None:
    said = second_ups[0].stderr
    assert f"{stack.port}  (PORT of the command line)" in said
    assert "(environment.yaml:" in said
    assert "by default:" in said


def test_secrets_are_in_no_output_and_no_file_that_others_read(
    stack: Stack, second_ups: tuple[Again, ...]
) -> None:
    password, done = stack.admin_password, second_ups[0]
    assert password not in done.stdout + done.stderr + stack.compose_file.read_text()
    assert f"cat .warmstack/{stack.project}/secrets/webui_admin_password" in done.stdout
    assert (stack.state / "secrets").stat().st_mode & 0o077 == 0
