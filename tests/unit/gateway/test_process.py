"""PID 1 of the gateway: it ends with Caddy, passes signals on, and tells whoever still waits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fakes.engine import FakeEngine, chat_body
from fakes.gateway import IMAGE, Gateway, StartGateway, caddy_binary
from support.waiting import wait_until

CHAT = "/v1/chat/completions"


def caddy_of(gateway: Gateway) -> int:
    """Process id of the gateway's only child."""
    assert gateway.process is not None
    pid = gateway.process.pid
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


def end(gateway: Gateway, number: signal.Signals, seconds: float = 12) -> int:
    """Send a signal to PID 1; its exit code."""
    assert gateway.process is not None
    gateway.process.send_signal(number)
    return gateway.process.wait(seconds)


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_when_it_is_asked_to(gateway: Gateway, number: signal.Signals) -> None:
    caddy = caddy_of(gateway)
    started = time.monotonic()
    assert end(gateway, number) == 0
    assert time.monotonic() - started < 5, "nobody was connected"
    assert is_gone(caddy)
    assert "Traceback" not in gateway.log.read_text()


def test_it_ends_when_caddy_ends(gateway: Gateway) -> None:
    os.kill(caddy_of(gateway), signal.SIGKILL)
    assert gateway.process is not None
    assert gateway.process.wait(5) == 128 + signal.SIGKILL


def test_a_caddy_that_cannot_start_is_an_end_too(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "warmstack_gateway"],
        env={
            "PATH": f"{Path(caddy_binary()).parent}:/usr/bin:/bin",
            "PYTHONPATH": str(IMAGE),
            "TMPDIR": str(tmp_path),
            "WARMSTACK_CADDYFILE": str(tmp_path / "none"),
            "WARMSTACK_DATA": str(tmp_path),
        },
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def test_a_signal_that_ends_nobody_is_passed_on_and_survived(gateway: Gateway) -> None:
    assert gateway.process is not None
    gateway.process.send_signal(signal.SIGHUP)
    wait_until(
        lambda: [line for line in gateway.log_lines() if "SIGHUP" in json.dumps(line)],
        seconds=5,
        what="Caddy heard of it",
    )
    assert gateway.ask("GET", "/v1/models").status == 200


def test_what_runs_may_finish(gateway: Gateway, engine: FakeEngine) -> None:
    engine.behave(token_seconds=0.2)
    with ThreadPoolExecutor() as pool:
        running = pool.submit(gateway.ask, "POST", CHAT, body=chat_body(stream=True))
        wait_until(lambda: engine.chats(), seconds=5, what="the engine has the request")
        assert end(gateway, signal.SIGTERM) == 0
        assert running.result().body.endswith(b"data: [DONE]\n\n")


def test_what_does_not_finish_is_told_why(start_gateway: StartGateway, engine: FakeEngine) -> None:
    gateway = start_gateway(WARMSTACK_HOLD="60s")
    engine.behave(tokens=("word ",) * 1000, token_seconds=0.05)
    with ThreadPoolExecutor() as pool:
        stream = pool.submit(gateway.ask, "POST", CHAT, body=chat_body(stream=True))
        plain = pool.submit(gateway.ask, "POST", CHAT, body=chat_body())
        wait_until(lambda: len(engine.chats()) == 2, seconds=5, what="the engine has both requests")
        engine.behave(loading=True)
        wait_until(
            lambda: gateway.ask("GET", "/ready").status == 503, seconds=5, what="the engine is not ready"
        )
        waiting = pool.submit(gateway.ask, "POST", CHAT, body=chat_body())
        wait_until(lambda: gateway.route("show")["waiting"] == 1, seconds=5, what="a third one waits")
        assert end(gateway, signal.SIGTERM) == 0
        *_, last = stream.result().body.strip().split(b"\n\n")
        assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "gateway_stopping"
        for answer in (plain.result(), waiting.result()):
            assert (answer.status, answer.error["code"]) == (503, "gateway_stopping")
            assert answer.headers["Retry-After"] == "5"
    wait_until(lambda: engine.cancelled == 1, seconds=5, what="the engine saw the stream's client go")


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("WARMSTACK_HOLD", "soon", "WARMSTACK_HOLD: 'soon' is no time such as 120s or 2m"),
        ("WARMSTACK_UPSTREAMS", " ", "WARMSTACK_UPSTREAMS: names no engine"),
        ("WARMSTACK_UPSTREAMS", "vllm", "WARMSTACK_UPSTREAMS: 'vllm' is no address such as vllm:8000"),
        ("WARMSTACK_METRICS", "x:0", "WARMSTACK_METRICS: 'x:0' is no address such as vllm:8000"),
        ("WARMSTACK_MOST_WAITING", "-1", "WARMSTACK_MOST_WAITING: '-1' is no whole number"),
    ],
)
def test_a_wrong_setting_is_one_line(tmp_path: Path, variable: str, value: str, sentence: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "warmstack_gateway"],
        env={"PYTHONPATH": str(IMAGE), "TMPDIR": str(tmp_path), variable: value},
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert (done.returncode, done.stderr) == (2, f"error: {sentence}\n")
