"""Tests that run in a pytest of their own beside the others: what waits a lot, what has its own stacks.

In: the items of a run. Out: the same reports as ever, in the run that began the other one: it waits for what
the other has to say of a test, and counts it as its own. `make test` asks for it (`--lanes`): of two cores a
process that waits a lot uses less than one, and so does the start of an engine.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".artefacts"
# What is timed, and what restarts the Docker engine, must be alone: it comes when every lane has ended.
ALONE = ("test_second_up.py", "test_restart_of_docker.py")
_PAUSE_SECONDS = 0.2
_END_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class Side:
    """Which tests go into one lane, by the beginning of their place below `tests`.

    `needed_kib`: memory that must be free for it; with less its tests come after the others.
    """

    name: str
    level: str
    places: tuple[str, ...]
    with_containers: bool
    needed_kib: int = 0


SIDES = (
    Side(name="gateway", level="unit", places=("unit/gateway/",), with_containers=False),
    # Stacks of their own, of which one lives at a time; for rolls another of those that tests share.
    Side(
        name="stacks",
        level="docker",
        places=("docker/test_hub.py", "docker/test_host_placement.py", "docker/test_roll.py"),
        with_containers=True,
        needed_kib=12 * 1024**2,
    ),
)


class Lane:
    """A pytest in a process of its own for some items. One with containers is begun from outside."""

    def __init__(self, config: pytest.Config, side: Side, items: Sequence[pytest.Item]) -> None:
        own = ("--own-host",) if config.getoption("--own-host") else ()
        self.side = side
        self._reports = FOLDER / f"lane-{side.name}.jsonl"
        self._log = FOLDER / f"lane-{side.name}.log"
        self._list = FOLDER / f"lane-{side.name}.txt"
        self._command = (
            *(sys.executable, "-m", "pytest", "--level", side.level, *own, "-p", "no:cacheprovider"),
            *("--report-to", str(self._reports), "--listed", str(self._list)),
            *dict.fromkeys(str(item.path) for item in items),
        )
        self._config = config
        self._names = tuple(item.nodeid for item in items)
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        if self._process is not None:
            return
        FOLDER.mkdir(exist_ok=True)
        self._reports.write_text("")
        self._list.write_text("".join(f"{name}\n" for name in self._names), encoding="utf-8")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> None:
        if not self.side.with_containers:
            self.begin()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """The other's reports in the place of a run of the test."""
        if item.nodeid not in self._names:
            return None
        self.begin()
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in self._reports_of(item):
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        # What the test before it left for it, such as its folder's fixtures.
        item.session._setupstate.teardown_exact(nextitem)
        return True

    def _reports_of(self, item: pytest.Item) -> Iterator[pytest.TestReport]:
        """Of set-up, call and tear-down, once all are there; a failure when the lane ended without them."""
        assert self._process is not None
        while True:
            ended = self._process.poll() is not None
            found = [one for one in self._lines() if one["nodeid"] == item.nodeid]
            if any(one["when"] == "teardown" for one in found):
                break
            if ended:
                problem = f"its lane ended without it (exit code {self._process.returncode}): {self._log}"
                yield pytest.TestReport(item.nodeid, item.location, {}, "failed", problem, "call")
                return
            time.sleep(_PAUSE_SECONDS)
        for one in found:
            yield self._config.hook.pytest_report_from_serializable(config=self._config, data=one)

    def _lines(self) -> list[dict[str, Any]]:
        whole = self._reports.read_text(encoding="utf-8").rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    def pytest_sessionfinish(self) -> None:
        """It ends by itself, but where this run was stopped: then it puts its stacks away first."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()


class Reporter:
    """In the lane: writes each report as a line of JSON."""

    def __init__(self, config: pytest.Config, path: Path) -> None:
        self._config = config
        self._path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(data) + "\n")


def items_of(side: Side, items: Sequence[pytest.Item], *, memory_kib: int) -> list[pytest.Item]:
    """The items for this lane; none where no other is left, or where memory is short."""
    found = [item for item in items if _place(item.path).startswith(side.places)]
    return found if memory_kib >= side.needed_kib and len(found) < len(items) else []


def _place(path: Path) -> str:
    return path.relative_to(ROOT / "tests").as_posix()
