"""A test that ran in a lane of its own counts as one of this run, whatever became of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support import lanes
from support.lanes import Lane, Reporter, items_of
from support.stack import ROOT
from support.waiting import wait_until

NAME = "tests/unit/gateway/test_hold.py::test_one"
LOCATION = ("tests/unit/gateway/test_hold.py", 1, "test_one")


def item(name: str = NAME) -> Any:
    """Stands for one of pytest's, with its hooks noted in `told`."""
    told: list[tuple[str, str]] = []
    hooks = SimpleNamespace(
        pytest_runtest_logstart=lambda **given: told.append(("start", given["nodeid"])),
        pytest_runtest_logreport=lambda report: told.append((report.when, report.outcome)),
        pytest_runtest_logfinish=lambda **given: told.append(("finish", given["nodeid"])),
    )
    path = ROOT / name.split("::")[0]
    session = SimpleNamespace(_setupstate=SimpleNamespace(teardown_exact=lambda nextitem: None))
    return SimpleNamespace(nodeid=name, location=LOCATION, ihook=hooks, told=told, path=path, session=session)


def lane_of(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, folder: Path, script: str, *words: str
) -> Lane:
    """A lane whose pytest is a script."""
    monkeypatch.setattr(lanes, "FOLDER", folder)
    lane = Lane(request.config, [item()])
    monkeypatch.setattr(lane, "_command", (sys.executable, "-c", script, str(folder / "lane.jsonl"), *words))
    return lane


def lines_of(request: pytest.FixtureRequest, folder: Path, *outcomes: str) -> str:
    reporter = Reporter(request.config, folder / "written")
    for when, outcome in zip(("setup", "call", "teardown"), outcomes, strict=True):
        problem = "it is wrong" if outcome == "failed" else None
        reporter.pytest_runtest_logreport(pytest.TestReport(NAME, LOCATION, {}, outcome, problem, when))  # type: ignore[arg-type]
    return (folder / "written").read_text()


WRITE = "import sys, time; f = open(sys.argv[1], 'a'); [(f.write(c), f.flush()) for c in sys.argv[2]]"


@pytest.mark.parametrize("outcome", ["passed", "failed"])
def test_its_reports_are_those_of_this_run(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, outcome: str
) -> None:
    text = lines_of(request, tmp_path, "passed", outcome, "passed")
    lane, mine = lane_of(request, monkeypatch, tmp_path, WRITE, text), item()
    lane.pytest_runtestloop()
    assert lane.pytest_runtest_protocol(mine, None) is True
    expected = [
        ("start", NAME),
        ("setup", "passed"),
        ("call", outcome),
        ("teardown", "passed"),
        ("finish", NAME),
    ]
    assert mine.told == expected


def test_a_lane_that_ends_without_a_test_fails_it(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lane, mine = lane_of(request, monkeypatch, tmp_path, "import sys; sys.exit(4)"), item()
    lane.pytest_runtestloop()
    assert lane.pytest_runtest_protocol(mine, None) is True
    assert mine.told[1:-1] == [("call", "failed")]


def test_other_tests_run_here(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lane = lane_of(request, monkeypatch, tmp_path, "")
    assert lane.pytest_runtest_protocol(item("tests/docker/test_stack.py::test_one"), None) is None


def test_a_run_that_is_stopped_ends_its_lane(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = """
import sys, time
try:
    open(sys.argv[1], "a").write("begun\\n")
    time.sleep(60)
except KeyboardInterrupt:
    open(sys.argv[1], "a").write("put away\\n")
"""
    lane = lane_of(request, monkeypatch, tmp_path, script)
    lane.pytest_runtestloop()
    lanes_file = tmp_path / "lane.jsonl"
    wait_until(lanes_file.read_text, seconds=20, what="the lane runs")
    lane.pytest_sessionfinish()
    assert lanes_file.read_text() == "begun\nput away\n"


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        (("unit/gateway/test_hold.py", "unit/ops/test_lanes.py", "docker/test_gateway.py"), ["test_hold.py"]),
        (("unit/gateway/test_hold.py", "unit/gateway/test_door.py"), []),
        (("docker/test_stack.py",), []),
    ],
)
def test_which_tests_get_a_lane(places: tuple[str, ...], expected: list[str]) -> None:
    found = items_of([item(f"tests/{place}::test") for place in places])
    assert [one.path.name for one in found] == expected


def test_reports_are_written_a_line_each(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    lines = lines_of(request, tmp_path, "passed", "failed", "passed").splitlines()
    assert [json.loads(line)["when"] for line in lines] == ["setup", "call", "teardown"]
