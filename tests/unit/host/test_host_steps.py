"""Starting an engine by hand and ending that one alone: a fake dockerd and docker, as real processes."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from warmops import host_steps
from warmops.docker import Docker
from warmplan.errors import UserError

# Ends on SIGTERM like the real one, and is named `dockerd` in its command line.
DOCKERD = """#!/bin/sh
echo "starting" >&2
while [ "$1" != --pidfile ]; do shift; done
echo $$ >"$2"
touch "$2.up"
trap 'rm -f "$2.up"; exit 0' TERM
while :; do sleep 0.05; done
"""


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Docker]:
    """A client that answers while the fake engine is up."""
    pid_file = tmp_path / "engine.pid"
    for name, text in (("dockerd", DOCKERD), ("docker", f"#!/bin/sh\n[ -e {pid_file}.up ]\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(host_steps, "PID_FILE", pid_file)
    monkeypatch.setattr(host_steps, "LOG_FILE", tmp_path / "engine.log")
    monkeypatch.setattr(host_steps, "find_dockerd", lambda: str(tmp_path / "dockerd"))
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def popen(*words: object, **options: object) -> subprocess.Popen[bytes]:
        process = real(*words, **options)  # type: ignore[call-overload]
        started.append(process)
        return process  # type: ignore[no-any-return]

    monkeypatch.setattr(subprocess, "Popen", popen)
    yield Docker(binary=str(tmp_path / "docker"))
    for process in started:
        process.kill()
        process.wait()


def fake_is_seen_as_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script's command line starts with its interpreter; the real dockerd's with its own name."""
    real = Path.read_bytes

    def read_bytes(path: Path) -> bytes:
        words = real(path)
        return words.split(b"\0", 1)[1] if path.name == "cmdline" else words

    monkeypatch.setattr(Path, "read_bytes", read_bytes)


def test_an_engine_started_by_hand_is_stopped_by_its_pid(
    docker: Docker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_is_seen_as_ours(monkeypatch)
    host_steps.start_by_hand(docker)
    assert docker.answers()
    assert host_steps.LOG_FILE.read_text() == "starting\n"
    assert host_steps.stop_engine()
    assert not docker.answers()
    assert not host_steps.stop_engine()


def test_a_number_that_belongs_to_another_process_is_left_alone(docker: Docker) -> None:
    other = subprocess.Popen(["sleep", "60"])
    try:
        host_steps.PID_FILE.write_text(str(other.pid))
        assert not host_steps.stop_engine()
        assert other.poll() is None
        assert not host_steps.PID_FILE.exists()
    finally:
        other.send_signal(signal.SIGKILL)
        other.wait()


def test_an_engine_that_ends_at_once_is_told_with_its_last_words(docker: Docker, tmp_path: Path) -> None:
    (tmp_path / "dockerd").write_text("#!/bin/sh\necho 'failed to mount cgroup' >&2\nexit 1\n")
    with pytest.raises(UserError, match="ended at once: failed to mount cgroup") as caught:
        host_steps.start_by_hand(docker)
    assert caught.value.exit_code == 3


def test_packages_of_each_distribution() -> None:
    assert host_steps.engine_packages("debian") == ("docker.io", "iptables", "debootstrap")
    assert host_steps.engine_packages("ubuntu")[-1] == "debian-archive-keyring"


def test_the_compose_plugin_goes_where_the_user_may_write() -> None:
    assert host_steps.plugin_folder(root=True) == Path("/usr/local/lib/docker/cli-plugins")
    assert host_steps.plugin_folder(root=False) == Path("~/.docker/cli-plugins").expanduser()
