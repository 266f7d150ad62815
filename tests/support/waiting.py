"""Waiting for a condition, without sleeping for a fixed time as if that were readiness."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
# What is soon there is soon seen; what takes long is asked seldom.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.2


def wait_until(look: Callable[[], T], *, wanted: Callable[[T], bool] = bool, seconds: float, what: str) -> T:
    """What `look` returns once it is `wanted`; AssertionError with the last state seen after `seconds`."""
    deadline = time.monotonic() + seconds
    pause = _FIRST_PAUSE
    while True:
        last: object
        try:
            seen = look()
            if wanted(seen):
                return seen
            last = seen
        except (OSError, ValueError, LookupError) as error:  # not there yet
            last = error
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds:.0f} s; last seen: {last!r}")
        time.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE)


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
