"""Tests begin while what later ones need is made: both ends of the pipe between `warm test` and pytest."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from support import preparation
from support.preparation import Preparation
from warmops import console, test
from warmplan.errors import Problem, UserError


class Lines:
    """Stands for pytest's reporter."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def ensure_newline(self) -> None: ...

    def write_line(self, line: str) -> None:
        self.told.append(line)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "preparation.log"
    path.write_text("building one\n\nerror: it does not build\n")
    return path


def told(log: Path, word: bytes) -> Preparation:
    listening, telling = os.pipe()
    os.write(telling, word)
    os.close(telling)
    return Preparation(f"{listening}:{log}")


def test_without_the_option_nothing_is_waited_for() -> None:
    Preparation(None).wait(Lines())


def test_it_is_waited_for_once(log: Path) -> None:
    waiting, lines = told(log, b"ready"), Lines()
    waiting.wait(lines)
    waiting.wait(lines)
    assert lines.told == []


def test_what_failed_ends_the_run_with_its_last_words(log: Path) -> None:
    with pytest.raises(pytest.exit.Exception, match="it does not build") as ended:
        told(log, b"").wait(Lines())
    assert ended.value.returncode == 3


def test_a_long_wait_says_what_is_being_done(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "BEAT_SECONDS", 0.01)
    listening, telling = os.pipe()
    lines = Lines()

    def tell_after_two_lines(line: str) -> None:
        lines.told.append(line)
        if len(lines.told) == 2:
            os.write(telling, b"ready")

    monkeypatch.setattr(lines, "write_line", tell_after_two_lines)
    Preparation(f"{listening}:{log}").wait(lines)
    os.close(telling)
    assert set(lines.told) == {"waiting for images and Chromium: error: it does not build"}


# Reads the pipe to its end, as pytest does when it comes to a test with containers.
LISTEN = """
import os, sys
descriptor, _, log = sys.argv[1].partition(":")
told = os.read(int(descriptor), 16)
print(told, open(log).read())
sys.exit(7 if told == b"ready" else 3)
"""


@pytest.mark.parametrize(("broken", "code"), [(False, 7), (True, 3)])
def test_pytest_runs_beside_it_and_gives_the_exit_code(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    broken: bool,
    code: int,
) -> None:
    def prepare(level: str) -> None:
        console.say("building one")
        if broken:
            raise UserError([Problem(key="", problem="it does not build")], exit_code=3)

    monkeypatch.setattr(test, "_LOG", tmp_path / "log")
    monkeypatch.setattr(test, "_prepare", prepare)
    monkeypatch.setattr(test, "_pytest", lambda level, words: [sys.executable, "-c", LISTEN, words[-1]])
    assert test._beside_preparation("docker", ()) == code
    said = capfd.readouterr()
    assert "building one" in said.out
    assert ("error: it does not build" in said.out) is broken
    assert said.err == ""
