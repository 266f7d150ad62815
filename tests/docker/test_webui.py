"""Open WebUI's image in the real stack and alone: what it keeps, writes and asks for (cases 34, 38, 39)."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import requests

from support.stack import QUESTION, ROOT, Stack, docker
from support.waiting import wait_until

# A name server that knows nothing and prints what it was asked.
NAME_SERVER = """
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("0.0.0.0", 53))
while True:
    query, client = server.recvfrom(4096)
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode())
        at += query[at] + 1
    print(".".join(labels), flush=True)
    server.sendto(query[:2] + b"\\x81\\x83" + query[4:6] + bytes(6) + query[12 : at + 5], client)
"""
ENGINE = """
import sys, threading
sys.path.insert(0, "/tests")
from fakes.engine import FakeEngine
with FakeEngine(host="0.0.0.0", port=8080):
    threading.Event().wait()
"""
ASK_OUTSIDE = "import socket\ntry: socket.getaddrinfo('outside.example', 80)\nexcept OSError: pass"


class Account:
    """The admin's session with the API that the page uses."""

    def __init__(self, url: str, email: str, password: str) -> None:
        self.url = url
        self.session = requests.Session()
        who = {"email": email, "password": password}
        token = self.session.post(f"{url}/api/v1/auths/signin", json=who, timeout=30).json()["token"]
        self.session.headers["Authorization"] = f"Bearer {token}"

    def models(self) -> list[str]:
        return [
            model["id"] for model in self.session.get(f"{self.url}/api/models", timeout=30).json()["data"]
        ]

    def chat(self, model: str) -> str:
        body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": QUESTION}]}
        body |= {"temperature": 0, "max_tokens": 24}
        answer = self.session.post(f"{self.url}/api/chat/completions", json=body, timeout=200)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["choices"][0]["message"]["content"])


def test_it_starts_without_an_engine_and_answers_once_there_is_one(stack: Stack) -> None:
    stack.compose("stop", "vllm")
    try:
        stack.compose("up", "--detach", "--no-deps", "--force-recreate", "--wait", "open-webui")
        admin = Account(stack.webui_url, stack.admin_email, stack.admin_password)
        with ThreadPoolExecutor() as pool:
            models = admin.models()
            waiting = pool.submit(admin.chat, models[0])
            stack.compose("start", "vllm")
            assert "Paris" in waiting.result()
    finally:
        stack.compose("start", "vllm")
    stack.wait_ready()
    assert models == [stack.model]


def test_it_writes_to_its_volume_and_to_tmp_alone_and_shows_no_secret(stack: Stack) -> None:
    changed = [line.split()[1] for line in docker("diff", stack.container("open-webui")).splitlines()]
    assert [path for path in changed if not path.startswith("/run")] == [], "secrets are mounted below /run"
    facts = stack.inspect("open-webui")
    assert facts["HostConfig"]["ReadonlyRootfs"] is True
    assert facts["Config"]["User"] == "10001:10001"
    assert stack.admin_password not in json.dumps(facts)
    log = stack.compose("logs", "--no-color", "open-webui")
    assert stack.admin_password not in log
    assert "Read-only file system" not in log
    assert "Permission denied" not in log


def test_a_recreated_container_knows_its_users_and_stays_closed(stack: Stack) -> None:
    before = Account(stack.webui_url, stack.admin_email, stack.admin_password)
    stack.compose("up", "--detach", "--no-deps", "--force-recreate", "--wait", "open-webui")
    assert before.models() == [stack.model]
    stranger = {"name": "Stranger", "email": "stranger@example.com", "password": "a-password-1"}
    for session in (requests.Session(), before.session):
        answer = session.post(f"{stack.webui_url}/api/v1/auths/signup", json=stranger, timeout=30)
        assert answer.status_code == 403, answer.text


@contextlib.contextmanager
def lonely_network() -> Iterator[str]:
    """A network with no way out; its containers and itself are removed afterwards."""
    name = f"wstest-{uuid.uuid4().hex[:8]}"
    docker("network", "create", "--internal", name)
    try:
        yield name
    finally:
        inside = json.loads(docker("network", "inspect", name))[0]["Containers"]
        for container in inside:
            docker("rm", "--force", "--volumes", container, check=False)
        docker("network", "rm", name, check=False)


def run(network: str, *arguments: str) -> tuple[str, str]:
    """Start a container in the network: its id and its address there."""
    container = docker("run", "--detach", "--network", network, *arguments).strip()
    settings = json.loads(docker("inspect", container))[0]["NetworkSettings"]["Networks"][network]
    return container, str(settings["IPAddress"])


def test_it_asks_for_no_name_outside(stack: Stack, tmp_path: Path) -> None:
    """With a name server that writes down every question; a question of the test's own shows that it does."""
    (tmp_path / "webui_secret_key").write_text("k" * 64)
    (tmp_path / "webui_admin_password").write_text("a-password-1")
    tmp_path.chmod(0o755)
    environment = stack.service_environment("open-webui") | {"OPENAI_API_CONFIGS": ""}
    image = str(stack.inspect("open-webui")["Config"]["Image"])
    python = ("--entrypoint", "/usr/bin/python3", "--user", "0", image, "-c")
    with lonely_network() as network:
        server, server_address = run(network, *python, NAME_SERVER)
        run(network, "--network-alias", "gateway", "--volume", f"{ROOT / 'tests'}:/tests:ro", *python, ENGINE)
        variables = [part for name, value in environment.items() for part in ("--env", f"{name}={value}")]
        secrets = ("--volume", f"{tmp_path}:/run/secrets:ro")
        webui, webui_address = run(network, "--dns", server_address, *variables, *secrets, image)
        url = f"http://{webui_address}:8080"
        wait_until(
            lambda: requests.get(f"{url}/ready", timeout=5).status_code,
            wanted=lambda status: status == 200,
            seconds=120,
            what="Open WebUI is ready",
        )
        admin = Account(url, stack.admin_email, "a-password-1")
        assert "Paris" in admin.chat(admin.models()[0])
        assert docker("logs", server) == ""
        docker("exec", webui, "/usr/bin/python3", "-c", ASK_OUTSIDE)
        assert "outside.example" in docker("logs", server)
