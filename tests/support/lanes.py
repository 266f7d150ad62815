"""Tests that run in a pytest of their own beside the others: the gateway's, which wait most of the time.

In: the items of a run. Out: the same reports as ever, in the run that began the other one: it waits for what
the other has to say of a test, and counts it as its own. `make test` asks for it (`--lanes`).
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".artefacts"
_PAUSE_SECONDS = 0.2
_END_SECONDS = 120.0
# Two stacks beside each other were tried too, on two cores: each then took twice as long.
GATEWAY = "unit/gateway/"


class Lane:
    """A pytest in a process of its own for some items of the level unit."""

    def __init__(self, config: pytest.Config, items: Sequence[pytest.Item]) -> None:
        own = ("--own-host",) if config.getoption("--own-host") else ()
        self._reports = FOLDER / "lane.jsonl"
        self._log = FOLDER / "lane.log"
        self._list = FOLDER / "lane.txt"
        self._command = (
            *(sys.executable, "-m", "pytest", "--level", "unit", *own, "-p", "no:cacheprovider"),
            *("--report-to", str(self._reports), "--listed", str(self._list)),
            *dict.fromkeys(str(item.path) for item in items),
        )
        self._config = config
        self._names = tuple(item.nodeid for item in items)
        self._process: subprocess.Popen[bytes] | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> None:
        FOLDER.mkdir(exist_ok=True)
        self._reports.write_text("")
        self._list.write_text("".join(f"{name}\n" for name in self._names), encoding="utf-8")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """The other's reports in the place of a run of the test."""
        if item.nodeid not in self._names:
            return None
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


def items_of(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The items for the lane; none where no other is left."""
    found = [item for item in items if item.path.is_relative_to(ROOT / "tests" / GATEWAY)]
    return found if len(found) < len(items) else []
