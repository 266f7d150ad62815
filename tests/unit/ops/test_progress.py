"""What a long step says: a line at times where there is no terminal, and none for each step of a bar."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest

from warmops import console, waiting
from warmops.docker import Completed, Compose, Docker
from warmops.model import ModelStore
from warmops.waiting import Progress


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lines of progress; a heartbeat comes at once."""
    lines: list[str] = []
    monkeypatch.setattr(console, "HEARTBEAT_SECONDS", 0.001)
    monkeypatch.setattr(console, "_write", lines.append)
    return lines


def until(lines: list[str], words: str) -> None:
    patience = Event()
    for _ in range(2000):
        if any(words in line for line in lines):
            return
        patience.wait(0.01)
    raise AssertionError(lines)


def test_a_silent_step_says_what_is_done_and_how_long(said: list[str]) -> None:
    with console.working("building one"):
        until(said, "building one: 0 s so far")
    count = len(said)
    Event().wait(0.05)
    assert len(said) == count, "it goes on after the end"


def test_a_count_is_told(said: list[str]) -> None:
    with console.counting("fetching", 3) as advance:
        advance(2)
        until(said, "fetching, 2 of 3: 0 s so far")


LINES = (
    "converting a model",
    "Loading weights:   0%|          | 0/272 [00:00<?, ?it/s]",
    "Loading weights: 100%|██████████| 272/272 [00:00<00:00, 19673.91it/s]",
    "error: it went wrong",
    "{}",
)


class Told(Docker):
    """A client whose containers have said some lines."""

    @contextmanager
    def stream(self, *arguments: str, quiet: bool = True) -> Iterator[Iterator[str]]:
        yield iter(LINES)


def test_a_progress_bar_is_no_line_for_each_step(said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "HEARTBEAT_SECONDS", 60)
    ModelStore(docker=Told(), image="x")._follow("id", what="get Org/Name")
    assert said == ["converting a model"]


class Quiet(Docker):
    """Keeps what it was asked."""

    def run(self, *arguments: str, **options: object) -> Completed:
        asked.append(options)
        return Completed(command=arguments, returncode=0, stdout="", stderr="")


asked: list[dict[str, object]] = []


def test_what_compose_says_of_each_container_is_kept_for_an_error() -> None:
    asked.clear()
    compose = Compose(docker=Quiet(), project="p", file=Path("f"), project_directory=Path("d"))
    compose.run("up", "--detach")
    compose.run("config", output=True)
    assert [one["output"] for one in asked] == [False, True]


def test_words_that_stay_are_said_again_at_times(said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(waiting, "HEARTBEAT_SECONDS", 15.0)
    monkeypatch.setattr(waiting.time, "monotonic", lambda: now[0])
    progress = Progress()
    for moment in (0.0, 1.0, 14.0, 16.0, 20.0, 32.0):
        now[0] = moment
        progress.show("loading")
    progress.show("ready")
    assert said == ["loading", "loading (16 s)", "loading (32 s)", "ready"]
