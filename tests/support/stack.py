"""A running CPU stack for tests: made by the project's own commands, removed whatever happens."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from support.waiting import free_port, wait_until

ROOT = Path(__file__).resolve().parents[2]
QUESTION = "What is the capital of France?"
HOLD_SECONDS = 600
SERVICES = ("weight-cache", "vllm", "gateway", "open-webui")


@dataclass(frozen=True, kw_only=True)
class Stack:
    """One Compose project, addressed as a user would: by `warm` commands, HTTP and docker."""

    project: str
    port: int
    webui_port: int
    env: str = "cpu"

    @property
    def gateway_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def webui_url(self) -> str:
        return f"http://127.0.0.1:{self.webui_port}"

    @property
    def state(self) -> Path:
        """The folder in which `up` keeps this project's Compose file, settings, secrets and reports."""
        return ROOT / ".warmstack" / self.project

    @property
    def compose_file(self) -> Path:
        return self.state / "compose.yaml"

    @property
    def admin_password(self) -> str:
        return (self.state / "secrets" / "webui_admin_password").read_text().strip()

    @property
    def admin_email(self) -> str:
        return str(self.service_environment("open-webui")["WEBUI_ADMIN_EMAIL"])

    @property
    def model(self) -> str:
        """The served model name."""
        return str(requests.get(f"{self.gateway_url}/v1/models", timeout=150).json()["data"][0]["id"])

    def warm(
        self, *arguments: str, check: bool = True, timeout: float = 1500
    ) -> subprocess.CompletedProcess[str]:
        """Run a `warm` sub-command for this project; with `check`, another exit than 0 fails the test."""
        return warm(arguments[0], "--project", self.project, *arguments[1:], check=check, timeout=timeout)

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """Begin a `warm` sub-command for this project."""
        return begin_warm(arguments[0], "--project", self.project, *arguments[1:])

    def up(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        ports = ("--port", str(self.port), "--webui-port", str(self.webui_port))
        # A busy machine may need longer for a start than the default hold, which these tests do not judge.
        hold = ("--set", f"gateway.hold_seconds={HOLD_SECONDS}")
        return self.warm("up", "--env", self.env, *ports, *hold, *arguments, check=check)

    def restart_engine(self) -> dict[str, Any]:
        """Recycle the engine by the project's command; its report as JSON."""
        return dict(json.loads(self.warm("restart", "--json").stdout))

    def compose(self, *arguments: str, check: bool = True) -> str:
        where = ("--project-directory", str(self.state), "-f", str(self.compose_file), "-p", self.project)
        return docker("compose", *where, *arguments, check=check)

    def container(self, service: str) -> str:
        """Container id of a service, running or not."""
        return self.compose("ps", "-aq", service).strip()

    def inspect(self, service: str) -> dict[str, Any]:
        return dict(json.loads(docker("inspect", self.container(service)))[0])

    def service_environment(self, service: str) -> dict[str, str]:
        return dict(item.split("=", 1) for item in self.inspect(service)["Config"]["Env"])

    def weight_cache_status(self) -> dict[str, Any]:
        """The supervisor's /status."""
        return dict(json.loads(self.compose("exec", "-T", "weight-cache", "warmstack-probe", "status")))

    def ask(self, question: str = QUESTION, *, timeout: float = 600, **extra: Any) -> str:
        """The model's greedy answer through the gateway."""
        body = {"model": self.model, "messages": [{"role": "user", "content": question}], "temperature": 0}
        body = {**body, "max_tokens": 24, **extra}
        answer = requests.post(f"{self.gateway_url}/v1/chat/completions", json=body, timeout=timeout)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["choices"][0]["message"]["content"])

    def wait_ready(self, *, seconds: float = 600) -> None:
        """Until the engine behind the gateway is ready."""
        wait_until(
            lambda: requests.get(f"{self.gateway_url}/ready", timeout=5).status_code,
            wanted=lambda code: code == 200,
            seconds=seconds,
            what=f"engine of {self.project} ready",
        )


def identities(stack: Stack) -> dict[str, tuple[str, str]]:
    """Container id and start of each service: equal means that nobody touched it."""
    found = {service: stack.inspect(service) for service in SERVICES}
    return {name: (facts["Id"], facts["State"]["StartedAt"]) for name, facts in found.items()}


def warm(*arguments: str, check: bool = True, timeout: float = 1500) -> subprocess.CompletedProcess[str]:
    """Run `python -m warmops …` from the top of the checkout."""
    done = subprocess.run(
        [sys.executable, "-m", "warmops", *arguments],
        cwd=ROOT,
        env=_warm_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    if check and done.returncode != 0:
        said = f"{done.stdout}\n{done.stderr}"
        raise AssertionError(f"warm {' '.join(arguments)}: exit {done.returncode}\n{said}")
    return done


def begin_warm(*arguments: str) -> subprocess.Popen[str]:
    """Begin `python -m warmops …`; whoever begins it also ends it."""
    return subprocess.Popen(
        [sys.executable, "-m", "warmops", *arguments],
        cwd=ROOT,
        env=_warm_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _warm_environment() -> dict[str, str]:
    paths = os.pathsep.join((str(ROOT / "compose"), str(ROOT / "scripts")))
    return {**os.environ, "PYTHONPATH": paths, "NO_COLOR": "1"}


def docker(*arguments: str, check: bool = True, merged: bool = False) -> str:
    """Run docker and return its stdout; `merged`: and its stderr, in order."""
    stderr = subprocess.STDOUT if merged else subprocess.PIPE
    done = subprocess.run(
        ["docker", *arguments],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
    )
    if check and done.returncode != 0:
        raise AssertionError(f"docker {' '.join(arguments)}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


@contextlib.contextmanager
def running_stack(*, name: str, env: str = "cpu", arguments: tuple[str, ...] = ()) -> Iterator[Stack]:
    """A stack of its own on free ports; prints its logs on failure, and is removed with its volumes."""
    stack = Stack(project=f"wstest-{name}", port=free_port(), webui_port=free_port(), env=env)
    try:
        stack.up(*arguments)
        yield stack
    except BaseException:
        if stack.compose_file.exists():
            print(stack.compose("logs", "--no-color", "--tail", "60", check=False))
        raise
    finally:
        stack.warm("down", "--all", "--volumes", check=False)
    label = f"label=com.docker.compose.project={stack.project}"
    left = [docker(kind, "ls", "--quiet", "--filter", label) for kind in ("volume", "network")]
    assert left == ["", ""], "what `down` left"
