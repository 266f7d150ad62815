"""The gateway's health check: quick, and about the gateway alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from fakes.engine import FakeEngine
from fakes.gateway import Gateway
from support.waiting import free_port

PROBE = Path(__file__).parents[3] / "gateway-image" / "bin" / "warmstack-gateway-probe"


def probe(port: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-ISE", str(PROBE)]
    return subprocess.run(
        command, env={"WARMSTACK_PORT": str(port)}, capture_output=True, text=True, timeout=10
    )


def test_a_gateway_without_an_engine_is_healthy(gateway: Gateway, engine: FakeEngine) -> None:
    engine.die()
    done = probe(gateway.port)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_another_answer_is_not_healthy(engine: FakeEngine) -> None:
    engine.behave(loading=True)
    done = probe(engine.port)
    assert done.returncode == 1
    assert "503" in done.stderr


def test_no_gateway_is_one_sentence() -> None:
    port = free_port()
    done = probe(port)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: the gateway does not answer on port {port}: ")
    assert len(done.stderr.splitlines()) == 1
