"""Levels of the test suite, and the running stack that the docker and browser levels share.

The folder of a test is its level: `unit` and `golden` need nothing, `docker` needs a Docker engine, `browser`
needs Chromium as well, `long` what `docker` needs and more time, `gpu` an NVIDIA GPU. `--level all` runs
every level but the last two.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.stack import Stack, running_stack

LEVELS = ("unit", "golden", "docker", "browser", "long", "gpu")
CHOICES = {"unit": ("unit", "golden"), "all": LEVELS[:-2], **{level: (level,) for level in LEVELS[1:]}}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--level", choices=sorted(CHOICES), default="unit", help="which levels to run (default: unit)"
    )
    parser.addoption(
        "--own-host",
        action="store_true",
        help="also what restarts this host's Docker engine, runs processes as another user, or wants "
        "systemd's program; `make test` gives it where root works with an engine that the project started",
    )


def level_of(path: Path) -> str:
    """The first folder below `tests`."""
    return path.relative_to(Path(__file__).parent).parts[0]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = CHOICES[config.getoption("--level")]
    items.sort(key=lambda item: LEVELS.index(level_of(item.path)))
    for item in items:
        level = level_of(item.path)
        if level in ("docker", "browser", "long", "gpu"):
            item.add_marker(level)
        if level not in wanted:
            item.add_marker(pytest.mark.skip(reason=f"give --level {level} to run this"))
        elif item.get_closest_marker("own_host") and not config.getoption("--own-host"):
            item.add_marker(pytest.mark.skip(reason="give --own-host to run this"))


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """The real CPU stack, brought up once by the project's own command and removed afterwards."""
    with running_stack(name=f"shared{os.getpid()}") as running:
        yield running
