"""Rolls of a running stack for tests: begun, watched, killed, and a client that asks meanwhile."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

import requests

from support.stack import QUESTION, Stack, docker

STEPS = (
    "start vllm-surge",
    "prove vllm-surge",
    "send requests to vllm-surge",
    "drain vllm",
    "replace vllm",
    "prove vllm",
    "send requests to vllm",
    "drain vllm-surge",
    "put vllm-surge away",
)


def record(stack: Stack) -> dict[str, Any]:
    """The roll that is under way; empty when none is."""
    with contextlib.suppress(FileNotFoundError):
        return dict(json.loads((stack.state / "roll.json").read_text()))
    return {}


def route(stack: Stack) -> dict[str, Any]:
    return dict(json.loads(stack.compose("exec", "-T", "gateway", "warmstack-gateway-route", "show")))


def engines(stack: Stack) -> dict[str, tuple[str, str]]:
    """Container id and start of both engines and the weight cache, as far as they are there."""
    label = f"label=com.docker.compose.project={stack.project}"
    found: dict[str, tuple[str, str]] = {}
    for one in json.loads(docker("inspect", *docker("ps", "-aq", "--filter", label).split())):
        service = one["Config"]["Labels"]["com.docker.compose.service"]
        if service in ("vllm", "vllm-surge", "weight-cache"):
            found[service] = (one["Id"], one["State"]["StartedAt"])
    return found


def count_of_sequences(stack: Stack) -> str:
    words = stack.inspect("vllm")["Config"]["Cmd"]
    return next(word.partition("=")[2] for word in words if word.startswith("--max-num-seqs="))


@contextlib.contextmanager
def roll(stack: Stack, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A roll that has begun; one that still runs at the end of the block is killed."""
    process = stack.begin("roll", "--json", *options)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def rolled(stack: Stack, *options: str) -> tuple[int, dict[str, Any], str]:
    done = stack.warm("roll", "--json", *options, check=False)
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def until(stack: Stack, process: subprocess.Popen[str], step: str) -> None:
    """Until the roll stands at the step."""
    deadline = time.monotonic() + 300
    while record(stack).get("step") != step:
        if process.poll() is not None or time.monotonic() > deadline:
            raise AssertionError(f"never at {step}: {record(stack)}\n{process.communicate()[1]}")
        time.sleep(0.005)


class Asking(threading.Thread):
    """A client that asks all the time; `failed` holds what did not end in an answer."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(daemon=True)
        self.url, self.body = (
            f"{stack.gateway_url}/v1/chat/completions",
            {
                "model": stack.model,
                "messages": [{"role": "user", "content": QUESTION}],
                "temperature": 0,
                "max_tokens": 24,
                "stream": True,
            },
        )
        self.answers: list[str] = []
        self.failed: list[str] = []
        self._end = threading.Event()

    def run(self) -> None:
        while not self._end.is_set():
            try:
                with requests.post(self.url, json=self.body, stream=True, timeout=300) as answer:
                    lines = [line for line in answer.iter_lines() if line]
                text = b"\n".join(lines).decode()
                whole = answer.status_code == 200 and text.endswith("[DONE]") and '"error"' not in text
                (self.answers if whole else self.failed).append(text[-300:])
            except requests.RequestException as error:
                self.failed.append(str(error))

    def __enter__(self) -> Asking:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self.join(300)
