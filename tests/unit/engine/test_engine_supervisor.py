"""The supervisor as a real process, with a fake `vllm preload` behind its command line."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.engine_samples import make_model
from support.pid_one import Program, program
from support.waiting import free_port, wait_until
from warmstack_shared.checkpoint import files_stamp, read_digest
from warmstack_shared.local_http import Answer, NoAnswerError, get_tcp, get_unix


class Supervisor:
    def __init__(self, running: Program, socket: str, port: int, model: Path) -> None:
        self.running, self.socket, self.port, self.model = running, socket, port, model

    def get(self, path: str) -> Answer:
        try:
            return get_unix(self.socket, path, 5)
        except NoAnswerError as error:
            raise OSError(str(error)) from error

    def status(self) -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(self.get("/status").body)
        return shown

    def wait_for(self, state: str, **fields: Any) -> dict[str, Any]:
        wanted = {"state": state, **fields}
        return wait_until(
            self.status, wanted=lambda shown: wanted.items() <= shown.items(), seconds=20, what=f"{wanted}"
        )


@contextmanager
def supervisor(folder: Path, wish: dict[str, Any], **changes: str) -> Iterator[Supervisor]:
    model = make_model(folder / "model")
    socket, port = str(folder / "supervisor.sock"), free_port()
    environment = {
        "WARMSTACK_IDENTITY": "a" * 64,
        "WARMSTACK_MODEL": "Org/Name",
        "WARMSTACK_MODEL_DIGEST": read_digest(model),
        "WARMSTACK_MODEL_PATH": str(model),
        "WARMSTACK_WEIGHT_BYTES": "1000",
        "WARMSTACK_RANKS": "1",
        "WARMSTACK_PLATFORM": "cpu",
        "WARMSTACK_MAX_RESTARTS": "2",
        "WARMSTACK_SUPERVISOR_SOCKET": socket,
        "WARMSTACK_STATUS_PORT": str(port),
    } | changes
    arguments = ["--model", str(model), "--weight-cache-socket-dir", str(folder / "ranks")]
    arguments += ["--weight-cache-health-port", str(free_port())]
    with program("warmstack_supervisor", arguments, environment, folder, wish) as running:
        yield Supervisor(running, socket, port, model)


def child_of(one: Supervisor) -> int:
    (child,) = one.running.below()
    return child


def test_held_when_bytes_and_digest_are_confirmed(tmp_path: Path) -> None:
    with supervisor(tmp_path, {}) as one:
        shown = one.wait_for("held")
        assert (shown["bytes_held"], shown["restarts"], shown["degraded"]) == (1000, 0, False)
        assert shown["rank_pids"] == [child_of(one)]
        assert shown["highest_pid"] >= child_of(one)
        assert shown["files"] == files_stamp(one.model)
        assert one.get("/health") == Answer(status=200, body=b"1000 bytes of Org/Name are held\n")
        assert get_tcp(one.port, "/health", 5).status == 200
        assert b'state="held"} 1' in one.get("/metrics").body
        assert one.get("/else").status == 404
        assert one.running.end() == 0
        assert one.running.below() == []


def test_a_killed_child_is_replaced(tmp_path: Path) -> None:
    """Case 18."""
    with supervisor(tmp_path, {}) as one:
        one.wait_for("held")
        first = child_of(one)
        os.kill(first, signal.SIGKILL)
        waiting = one.running.wait_for("weight-cache", state="waiting")
        assert waiting["reason"] == "vllm preload ended (killed by SIGKILL)"
        shown = one.wait_for("held", restarts=1)
        assert not shown["degraded"]
        assert child_of(one) != first


def test_degraded_while_no_child_holds_what_was_held(tmp_path: Path) -> None:
    """Case 18."""
    with supervisor(tmp_path, {"bytes_file": str(_bytes(tmp_path, 1000))}) as one:
        one.wait_for("held")
        _bytes(tmp_path, 0)  # the next child comes up and holds nothing
        os.kill(child_of(one), signal.SIGKILL)
        one.wait_for("loading", degraded=True)
        assert one.get("/health").status == 503


def test_released_weights_are_loaded_anew(tmp_path: Path) -> None:
    """Case 33: vLLM's own health stays 200 after a release."""
    with supervisor(tmp_path, {"bytes_file": str(_bytes(tmp_path, 1000))}) as one:
        one.wait_for("held")
        _bytes(tmp_path, 0)
        mark = one.running.wait_for("weight-cache", state="waiting")
        assert mark["reason"] == "vllm preload has released the weights"
        _bytes(tmp_path, 1000)
        one.wait_for("held", restarts=1)


def _bytes(folder: Path, count: int) -> Path:
    path = folder / "bytes"
    path.write_text(str(count))
    return path


def test_another_digest_is_never_held(tmp_path: Path) -> None:
    with supervisor(tmp_path, {}, WARMSTACK_MODEL_DIGEST="b" * 64) as one:
        shown = one.wait_for("failed")
        assert "but the plan was made for bbbbbbbbbbbbbbbb" in shown["reason"]
        assert [mark["state"] for mark in one.running.marks] == ["loading", "failed"]
        wait_until(lambda: not one.running.below(), seconds=20, what="the child is removed")
        assert one.get("/health").status == 503


def test_failed_loads_are_bounded_and_the_last_error_is_named(tmp_path: Path) -> None:
    """Case 19."""
    with supervisor(tmp_path, {"lines": ["OSError: [Errno 28] No space left"], "exit": 1}) as one:
        shown = one.wait_for("failed")
        assert shown["reason"] == (
            "2 loads in a row failed; vllm preload ended (exit code 1): OSError: [Errno 28] No space left"
        )
        assert shown["restarts"] == 1
        assert one.running.process.poll() is None


def test_weights_that_never_fit_are_not_loaded(tmp_path: Path) -> None:
    """Case 22."""
    with supervisor(tmp_path, {}, WARMSTACK_WEIGHT_BYTES=str(2**60)) as one:
        shown = one.wait_for("failed")
        assert shown["reason"].startswith("/dev/shm has ")
        assert one.running.below() == []


@pytest.mark.parametrize(
    ("name", "value"), [("WARMSTACK_RANKS", "0"), ("WARMSTACK_PLATFORM", "tpu"), ("WARMSTACK_MODEL", "")]
)
def test_wrong_settings_end_at_once(tmp_path: Path, name: str, value: str) -> None:
    with supervisor(tmp_path, {}, **{name: value}) as one:
        assert one.running.process.wait(10) == 2
        wait_until(lambda: name in " ".join(one.running.lines), seconds=5, what="the sentence")
