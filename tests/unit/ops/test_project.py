"""What is remembered of a project, and how docker's words become facts."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from warmops.changes import Container
from warmops.docker import Docker
from warmops.project import (
    Project,
    Remembered,
    container_from,
    last_project,
    log_line,
    read_remembered,
    unix_seconds,
    write_remembered,
)
from warmops.secret_files import ensure_secrets
from warmplan.errors import UserError

SETTINGS = Remembered(
    environment="cpu",
    overrides={"model.name": "Org/Name"},
    model="Org/Name",
    served_model="Org/Name",
    identity="a" * 64,
    platform="cpu",
    ranks=1,
    gateway_url="http://127.0.0.1:8000",
    webui_url=None,
    needs_api_key=False,
)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    write_remembered(tmp_path / "p", SETTINGS)
    assert Project(name="p", state=tmp_path).remembered() == SETTINGS


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"schema": 2}', '{"schema": 1, "other": 1}'])
def test_what_another_version_wrote_is_not_read(tmp_path: Path, content: str) -> None:
    (tmp_path / "settings.json").write_text(content)
    assert read_remembered(tmp_path) is None


def test_a_project_that_was_never_up_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has not been brought up") as caught:
        Project(name="p", state=tmp_path).remembered()
    assert caught.value.exit_code == 2


def test_the_last_project_of_an_environment(tmp_path: Path) -> None:
    assert last_project(None, state=tmp_path) is None
    for age, (name, environment) in enumerate([("a", "cpu"), ("b", "gpu"), ("c", "cpu")]):
        write_remembered(tmp_path / name, replace(SETTINGS, environment=environment))
        os.utime(tmp_path / name / "settings.json", (1000 - age, 1000 - age))
    assert last_project(None, state=tmp_path) == "a"
    assert last_project("gpu", state=tmp_path) == "b"
    assert last_project("gpu-tp2", state=tmp_path) is None


def test_a_container_as_docker_tells_it() -> None:
    found = container_from(
        {
            "Id": "abc",
            "Image": "sha256:i",
            "RestartCount": 2,
            "Config": {"Labels": {"com.docker.compose.service": "vllm", "warmstack.identity": "x"}},
            "HostConfig": {"IpcMode": "container:wc"},
            "State": {
                "Status": "exited",
                "ExitCode": 137,
                "StartedAt": "2026-11-29T12:00:00.5Z",
                "FinishedAt": "2026-11-29T12:00:07.5Z",
            },
        }
    )
    assert (found.service, found.state, found.exit_code, found.joined_ipc) == ("vllm", "exited", 137, "wc")
    assert (found.identity, found.model, found.health, found.restarts) == ("x", None, None, 2)
    assert (found.started_at, found.finished_at) == (1795953600.5, 1795953607.5)


@pytest.mark.parametrize(
    ("started_at", "finished_at", "begins_at"),
    [
        (0.0, 0.0, 0.0),
        (100.0, 0.0, 95.0),
        (100.0, 50.0, 95.0),
        (100.0, 99.0, 99.0),
        (100.0, 170.0, 95.0),
    ],
    ids=["never started", "first run", "run before long ago", "run before just ended", "ended"],
)
def test_the_log_of_a_run_begins_before_docker_notes_its_start(
    started_at: float, finished_at: float, begins_at: float
) -> None:
    """Seen: an engine's first mark 0.2 ms before StartedAt; without it the start is never judged."""
    container = Container(
        service="vllm",
        id="c",
        state="running",
        config_hash="",
        image_id="",
        started_at=started_at,
        finished_at=finished_at,
    )
    assert container.log_begins_at == begins_at


def test_a_first_line_that_came_before_the_noted_start_is_read(tmp_path: Path) -> None:
    """A docker that knows two lines, the first one before StartedAt, and `--since` as Docker means it."""
    docker = tmp_path / "docker"
    docker.write_text(
        "#!/bin/sh\n"
        "[ $1 = logs ] || exit 1\n"
        "awk -v since=\"$4\" '$2 >= since { print $1, $3 }' <<END\n"
        "2026-11-29T12:00:00.365511797Z 1795953600.365511797 first\n"
        "2026-11-29T12:00:10.772341101Z 1795953610.772341101 second\n"
        "END\n"
    )
    docker.chmod(0o755)
    container = Container(
        service="vllm", id="c", state="running", config_hash="", image_id="", started_at=1795953600.365669
    )
    project = Project(name="p", state=tmp_path, docker=Docker(binary=str(docker)))
    assert [line.text for line in project.log(container)] == ["first", "second"]


def test_times_of_docker() -> None:
    assert unix_seconds("2026-11-29T12:00:00.123456789Z") == pytest.approx(1795953600.123456)
    assert unix_seconds("0001-01-01T00:00:00Z") == 0.0


def test_log_lines_with_and_without_a_time() -> None:
    line = log_line("2026-11-29T12:00:00.5Z INFO  a b")
    assert (line.t, line.text) == (1795953600.5, "INFO  a b")
    assert log_line("no time").text == "no time"


def test_secrets_are_made_once_and_closed(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    assert ensure_secrets(folder, ["api_key", "webui_secret_key"]) == ("api_key", "webui_secret_key")
    first = (folder / "api_key").read_text()
    assert ensure_secrets(folder, ["api_key"]) == ()
    assert (folder / "api_key").read_text() == first
    assert len(first) > 40
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "api_key").stat().st_mode & 0o777 == 0o444
