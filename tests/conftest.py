"""Levels of the test suite, and the running stack that the docker and browser levels share.

The folder of a test is its level: `unit` and `golden` need nothing, `docker` needs a Docker engine, `browser`
needs Chromium as well, `long` the same and more time, `gpu` an NVIDIA GPU. `--level all` runs
every level but the last two.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.lanes import Lane, Reporter, items_of
from support.preparation import Preparation
from support.stack import Stack, running_stack

LEVELS = ("unit", "golden", "docker", "browser", "long", "gpu")
WITH_CONTAINERS = ("docker", "browser", "long")
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
    parser.addoption("--preparation", metavar="FD:LOG", help="where `make test` says that all is there")
    parser.addoption("--lanes", action="store_true", help="run some tests in a process beside the others")
    parser.addoption("--report-to", type=Path, help="in a lane: where each report is written")
    parser.addoption("--listed", type=Path, help="in a lane: a file with the tests that it runs")


preparation = pytest.StashKey[Preparation]()
level_seconds = pytest.StashKey[dict[str, float]]()


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # Begun in the background of a shell: that must not keep it, nor what it starts, from being stopped.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[preparation] = Preparation(config.getoption("--preparation"))
    config.stash[level_seconds] = {}
    if (path := config.getoption("--report-to")) is not None:
        config.pluginmanager.register(Reporter(config, path))


def level_of(path: Path) -> str:
    """The first folder below `tests`."""
    return path.relative_to(Path(__file__).parent).parts[0]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if (listed := config.getoption("--listed")) is not None:
        names = set(listed.read_text(encoding="utf-8").splitlines())
        items[:] = [item for item in items if item.nodeid in names]
    wanted = CHOICES[config.getoption("--level")]
    items.sort(key=lambda item: LEVELS.index(level_of(item.path)))
    for item in items:
        level = level_of(item.path)
        if level in (*WITH_CONTAINERS, "gpu"):
            item.add_marker(level)
        if level not in wanted:
            item.add_marker(pytest.mark.skip(reason=f"give --level {level} to run this"))
        elif item.get_closest_marker("own_host") and not config.getoption("--own-host"):
            item.add_marker(pytest.mark.skip(reason="give --own-host to run this"))
    if config.getoption("--lanes") and not config.getoption("--collect-only"):
        _open_lane(config, items)


def _open_lane(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What its tests said comes last of their level."""
    beside = items_of([item for item in items if item.get_closest_marker("skip") is None])
    if beside:
        config.pluginmanager.register(Lane(config, beside))
        chosen = set(beside)
        items.sort(key=lambda item: (LEVELS.index(level_of(item.path)), item in chosen))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Tests with containers wait for what `make test` makes meanwhile; the time of each level is summed."""
    config, level = item.config, level_of(item.path)
    if level in WITH_CONTAINERS:
        config.stash[preparation].wait(config.pluginmanager.get_plugin("terminalreporter"))
    begun = time.monotonic()
    result = yield
    spent = config.stash[level_seconds]
    spent[level] = spent.get(level, 0.0) + time.monotonic() - begun
    return result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    told = [f"{level} {seconds:.0f} s" for level, seconds in config.stash[level_seconds].items()]
    waited = config.stash[preparation].seconds
    told += [f"waiting for images and Chromium {waited:.0f} s"] if waited else []
    terminalreporter.write_line(f"levels: {', '.join(told)}")


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """The real CPU stack, brought up once by the project's own command and removed afterwards."""
    with running_stack(name=f"shared{os.getpid()}") as running:
        yield running
