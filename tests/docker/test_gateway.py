"""The gateway's image in the real stack: who reaches what, engines that move, the key (cases 8, 35, 40)."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests

from support.stack import Stack, docker
from support.waiting import wait_until

CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3)"


def address(container: str) -> str:
    """The address of a container in its first network."""
    networks = json.loads(docker("inspect", container))[0]["NetworkSettings"]["Networks"]
    return str(next(iter(networks.values()))["IPAddress"])


def connects(stack: Stack, service: str, host: str, port: int) -> bool:
    """Whether a connection from inside a service's container to host:port is taken."""
    command = ("exec", "-T", service, "/usr/bin/python3", "-ISE", "-c", CONNECT, host, str(port))
    with contextlib.suppress(AssertionError):
        stack.compose(*command)
        return True
    return False


def route(stack: Stack, *words: str) -> dict[str, Any]:
    """Ask or set which engine new requests go to, as the orchestration does it."""
    return dict(json.loads(stack.compose("exec", "-T", "gateway", "warmstack-gateway-route", *words)))


def process_of(stack: Stack, service: str, words: str) -> int:
    """Id on this host of the first process of a service whose command line has these words."""
    lines = docker("top", stack.container(service), "-o", "pid,args").splitlines()[1:]
    return next(int(line.split()[0]) for line in lines if words in line)


@contextlib.contextmanager
def container(*arguments: str) -> Iterator[str]:
    """A container of the test's own, removed afterwards. Its name."""
    name = f"wstest-{uuid.uuid4().hex[:8]}"
    docker("run", "--detach", "--name", name, *arguments)
    try:
        yield name
    finally:
        docker("rm", "--force", name, check=False)


def test_the_engine_is_reached_through_the_gateway_alone(stack: Stack) -> None:
    engine = address(stack.container("vllm"))
    assert connects(stack, "gateway", "vllm", 8000)
    assert connects(stack, "open-webui", "gateway", 8080)
    assert not connects(stack, "open-webui", "vllm", 8000)
    assert not connects(stack, "open-webui", engine, 8000)
    assert not connects(stack, "gateway", "127.0.0.1", 2019), "Caddy's admin API is open"
    for service in ("vllm", "weight-cache"):
        assert not any(stack.inspect(service)["NetworkSettings"]["Ports"].values()), service
    assert requests.get(f"{stack.gateway_url}/metrics", timeout=10).status_code == 404


def test_metrics_are_served_in_the_backend_network_alone(stack: Stack) -> None:
    addresses = {
        name.rpartition("_")[2]: str(network["IPAddress"])
        for name, network in stack.inspect("gateway")["NetworkSettings"]["Networks"].items()
    }
    script = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=5).read().decode())"
    url = "http://gateway-metrics:9180/metrics"
    text = stack.compose("exec", "-T", "vllm", "/usr/bin/python3", "-ISE", "-c", script, url)
    assert 'warmstack_gateway_engine_ready{engine="vllm"} 1\n' in text
    assert connects(stack, "vllm", addresses["backend"], 9180)
    assert connects(stack, "open-webui", addresses["frontend"], 8080)
    for host in ("gateway-metrics", *addresses.values()):
        assert not connects(stack, "open-webui", host, 9180), host
    assert not connects(stack, "gateway", addresses["frontend"], 9180)


def test_the_order_is_set_from_outside_and_outlives_the_container(stack: Stack) -> None:
    state = route(stack, "show")
    assert state["order"] == ["vllm", "vllm-surge"]
    assert [engine["ready"] for engine in state["engines"].values()] == [True, False]
    try:
        assert route(stack, "set", "vllm-surge", "vllm")["order"] == ["vllm-surge", "vllm"]
        assert "Paris" in stack.ask()
        stack.compose("up", "--detach", "--no-deps", "--force-recreate", "gateway")
        stack.wait_ready(seconds=60)
        assert route(stack, "show")["order"] == ["vllm-surge", "vllm"]
        assert "Paris" in stack.ask()
    finally:
        route(stack, "set", "vllm", "vllm-surge")


def test_what_an_exec_leaves_behind_is_collected(stack: Stack) -> None:
    """PID 1 inherits it, and a process that nobody waits for would stay as a zombie."""
    stack.compose("exec", "-T", "gateway", "sh", "-c", "sleep 1 & echo left behind")
    wait_until(
        lambda: docker("top", stack.container("gateway"), "-o", "pid,stat,comm"),
        wanted=lambda text: "sleep" not in text and " Z" not in text,
        seconds=10,
        what="nothing is left of it",
    )


def test_a_gateway_whose_caddy_dies_comes_back(stack: Stack) -> None:
    before = process_of(stack, "gateway", "caddy run")
    os.kill(before, signal.SIGKILL)
    wait_until(
        lambda: (
            requests.get(f"{stack.gateway_url}/ready", timeout=5).status_code == 200
            and process_of(stack, "gateway", "caddy run") != before
        ),
        seconds=60,
        what="the gateway is back",
    )
    assert stack.inspect("gateway")["RestartCount"] >= 1


def test_a_request_is_held_for_an_engine_that_comes_back_with_another_address(stack: Stack) -> None:
    before = address(stack.container("vllm"))
    network, image = f"{stack.project}_backend", str(stack.inspect("gateway")["Config"]["Image"])
    stack.compose("stop", "vllm")
    # Takes the free address, so that the engine gets another one.
    with container("--network", network, "--entrypoint", "sleep", image, "300"), ThreadPoolExecutor() as pool:
        waiting = pool.submit(stack.ask)
        assert requests.get(f"{stack.gateway_url}/ready", timeout=10).status_code == 503
        assert requests.get(f"{stack.gateway_url}/health", timeout=10).status_code == 200
        stack.compose("start", "vllm")
        assert address(stack.container("vllm")) != before
        assert "Paris" in waiting.result()
    stack.wait_ready()


@pytest.mark.parametrize("end", ["VLLM::EngineCore", "vllm serve", "restart"])
def test_when_an_engine_ends_only_its_streams_end_and_each_with_a_sentence(stack: Stack, end: str) -> None:
    body = {
        "model": stack.model,
        "messages": [{"role": "user", "content": "Count."}],
        "max_tokens": 1500,
        "ignore_eos": True,
        "stream": True,
    }
    url = f"{stack.gateway_url}/v1/chat/completions"
    with ThreadPoolExecutor() as pool, requests.post(url, json=body, stream=True, timeout=600) as answer:
        events = (line.removeprefix(b"data: ") for line in answer.iter_lines() if line.startswith(b"data: "))
        assert b'"choices"' in next(events)
        plain = pool.submit(stack.ask, max_tokens=300, ignore_eos=True)
        wait_until(
            lambda: route(stack, "show")["engines"]["vllm"]["in_flight"],
            wanted=lambda count: count == 2,
            seconds=60,
            what="the engine has both requests",
        )
        if end == "restart":
            stack.compose("restart", "vllm")
        else:
            os.kill(process_of(stack, "vllm", end), signal.SIGKILL)
        *_, last = events
        error = json.loads(last)["error"]
        assert (error["type"], error["code"]) == ("server_error", "engine_stopped"), error
        assert error["message"].endswith("."), error
        assert "Paris" in plain.result(), "an answer that had not begun comes from the next engine"
    assert "Paris" in stack.ask()


@pytest.mark.parametrize("secret", ["s3cret\n", "", None], ids=["key", "empty file", "no file"])
def test_a_key_that_is_required_is_required(stack: Stack, tmp_path: Path, secret: str | None) -> None:
    image = str(stack.inspect("gateway")["Config"]["Image"])
    mount: tuple[str, ...] = ()
    if secret is not None:
        file = tmp_path / "api_key"
        file.write_text(secret)
        file.chmod(0o444)
        mount = ("--volume", f"{file}:/run/secrets/api_key:ro")
    hardened = ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--tmpfs", "/tmp")
    network = ("--network", f"{stack.project}_backend")
    with container(*hardened, *network, *mount, "--env", "WARMSTACK_API_KEY=required", image) as gateway:
        url = f"http://{address(gateway)}:8080"

        def status(path: str, key: str = "") -> int:
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            return requests.get(f"{url}{path}", headers=headers, timeout=10).status_code

        wait_until(
            lambda: status("/health"), wanted=lambda code: code == 200, seconds=20, what="the gateway answers"
        )
        assert status("/ready") == 200
        assert status("/v1/models") == status("/v1/models", "wrong") == 401
        assert status("/v1/models", "s3cret") == (200 if secret else 401)
        assert "s3cret" not in docker("logs", gateway)
        docker("exec", gateway, "warmstack-gateway-probe")
