"""Facts of `doctor` from what Docker, the driver and the kernel print; nothing secret comes along."""

from __future__ import annotations

import socket
import sys
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.wishes import CPU, CUDA, plan_of, spec_of
from warmops.doctor_facts import EngineFacts, Gpu, GpuProcess
from warmops.doctor_gather import (
    OwnContainer,
    cuda_of,
    engine_from,
    needed_memory,
    own_container,
    selinux_state,
)
from warmops.doctor_gpu import parse_gpu_host, unlinked_devices
from warmops.doctor_hub import host_of, hub_facts

MIB, GIB = 1024**2, 1024**3
WISH = spec_of(CPU).model
# Engine 20.10.24 with a 28.2.2 client and Compose 5.6.1, cut to what is read.
INFO: dict[str, Any] = {
    "ServerVersion": "20.10.24+dfsg1",
    "Runtimes": {"runc": {"path": "runc"}, "nvidia": {"path": "nvidia-container-runtime"}},
    "CgroupDriver": "systemd",
    "SecurityOptions": ["name=seccomp,profile=default"],
    "DockerRootDir": "/var/lib/docker",
    "SystemTime": "2026-11-29T17:41:53.001712442Z",
    "CDISpecDirs": None,
    "ClientInfo": {
        "Plugins": [{"Name": "buildx", "Version": "v0.1"}, {"Name": "compose", "Version": "v5.6.1"}]
    },
}
NOW = datetime(2026, 11, 29, 17, 41, 52, tzinfo=UTC).timestamp()


def test_an_engine_that_answers() -> None:
    found = engine_from(INFO, api="1.41", now=NOW)
    assert found.clock_offset_seconds == pytest.approx(1.0, abs=0.01)
    assert (found.version, found.api, found.compose) == ("20.10.24+dfsg1", "1.41", "5.6.1")
    assert (found.runtimes, found.cgroup_driver, found.problem) == (("nvidia", "runc"), "systemd", None)
    assert found.folder == "/var/lib/docker"


def test_gpus_that_are_known_by_cdi() -> None:
    devices = [{"Source": "cdi", "ID": "nvidia.com/gpu=all"}, {"Source": "cdi", "ID": "vendor.com/net=0"}]
    assert engine_from({**INFO, "DiscoveredDevices": devices}, api="1.50", now=NOW).cdi_devices == (
        "nvidia.com/gpu=all",
    )


@pytest.mark.parametrize(
    ("info", "said", "problem"),
    [
        ({"ServerVersion": ""}, "warning: x\nCannot connect\n", "Cannot connect"),
        ({"ServerErrors": ["permission denied"]}, "", "permission denied"),
        ({}, "", "no Docker engine answers"),
    ],
)
def test_an_engine_that_does_not_answer(info: dict[str, Any], said: str, problem: str) -> None:
    client = {"ClientInfo": INFO["ClientInfo"]}
    assert engine_from({**client, **info}, api="", now=NOW, said=said) == EngineFacts(
        problem=problem, compose="5.6.1"
    )


def test_gpus_and_who_holds_their_memory() -> None:
    gpus = "GPU-1, NVIDIA H200, 143771, 62000, 580.95.05\nGPU-2, NVIDIA H200, 143771, 143000, 580.95.05\n"
    processes = "GPU-1, 4242, /opt/venv/bin/python3, 80000\nGPU-1, 77, [Not Found], [N/A]\n"
    found = parse_gpu_host(gpus, processes)
    assert found.driver == "580.95.05"
    assert found.gpus[0] == Gpu(
        uuid="GPU-1",
        name="NVIDIA H200",
        total_bytes=143771 * MIB,
        free_bytes=62000 * MIB,
        processes=(
            GpuProcess(pid=4242, name="/opt/venv/bin/python3", used_bytes=80000 * MIB),
            GpuProcess(pid=77, name="[Not Found]", used_bytes=None),
        ),
    )
    assert found.gpus[1].processes == ()
    assert parse_gpu_host("", "").driver is None


def test_a_device_file_without_its_link(tmp_path: Path) -> None:
    # Making device files needs root: a link to one that every machine has stands for NVIDIA's.
    (tmp_path / "char").mkdir()
    (tmp_path / "nvidia0").symlink_to("/dev/null")
    (tmp_path / "nvidia-caps").mkdir()
    assert unlinked_devices(tmp_path) == (str(tmp_path / "nvidia0"),)
    (tmp_path / "char/1:3").symlink_to("/dev/null")
    assert unlinked_devices(tmp_path) == ()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "gateway\trunning\t127.0.0.1:8000->8080/tcp, [::1]:8001->8080/tcp",
            OwnContainer(service="gateway", running=True, ports=(8000, 8001)),
        ),
        ("vllm\texited\t", OwnContainer(service="vllm", running=False, ports=())),
    ],
)
def test_a_line_of_docker_ps(line: str, expected: OwnContainer) -> None:
    assert own_container(line) == expected


def test_the_image_tells_its_cuda() -> None:
    images: list[dict[str, Any]] = [
        {"Config": {"Env": None}},
        {"Config": {"Env": ["A=1", "CUDA_VERSION=13.0.1"]}},
    ]
    assert cuda_of(images) == "13.0.1"
    assert cuda_of(images[:1]) is None


@pytest.mark.parametrize(
    ("text", "headroom"),
    [
        (CPU, 0),
        (CUDA, GIB // 2),
        (CUDA.replace("memory_gib: 80", "memory_gib: 80, headroom_gib: 2"), 2 * GIB),
    ],
)
def test_headroom_need_not_be_free(text: str, headroom: int) -> None:
    plan = plan_of(text)
    assert plan.budget.steady_bytes - needed_memory(plan) == headroom


@pytest.mark.parametrize(("text", "expected"), [("1", "enforcing"), ("0", "permissive"), (None, None)])
def test_selinux(tmp_path: Path, text: str | None, expected: str | None) -> None:
    if text is not None:
        (tmp_path / "enforce").write_text(text)
    assert selinux_state(tmp_path / "enforce") == expected


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://user:secret@mirror.example:8443/path?token=x", "https://mirror.example:8443"),
        ("https://mirror.example", "https://mirror.example"),
        ("", ""),
    ],
)
def test_an_address_is_shown_without_what_may_be_secret(url: str, shown: str) -> None:
    assert host_of(url) == shown


class Refusing(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.send_response(401)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def no_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "HF_TOKEN_PATH", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))


@pytest.mark.usefixtures("no_login")
def test_a_hub_that_answers_anything_is_reachable() -> None:
    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        found = hub_facts({"HF_ENDPOINT": address, "HF_TOKEN": "hf_secret"}, WISH)
    assert (found.asked, found.problem, found.token) == (address, None, "set")
    assert "hf_secret" not in repr(found)


@pytest.mark.usefixtures("no_login")
def test_a_hub_that_does_not_answer() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
        wish = spec_of(CPU, {"model.hub_endpoint": address}).model
        found = hub_facts({"HF_ENDPOINT": "http://127.0.0.1:1", "HF_TOKEN": " "}, wish)
    assert (found.asked, found.problem, found.token) == (address, "ConnectionRefusedError", "empty")


@pytest.mark.usefixtures("no_login")
def test_a_saved_login_counts_and_a_local_model_asks_nobody(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hf_secret")
    found = hub_facts({"HF_ENDPOINT": "http://127.0.0.1:1"}, None)
    assert (found.asked, found.token) == (None, "set")


@pytest.mark.usefixtures("no_login")
@pytest.mark.parametrize(
    ("raised", "problem"), [(None, None), (PermissionError, None), (TimeoutError, "TimeoutError")]
)
def test_the_hubs_own_client_is_used_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, raised: type[Exception] | None, problem: str | None
) -> None:
    def model_info(name: str, *, timeout: float) -> None:
        assert (name, timeout) == ("Org/Model", 2.0)
        if raised is not None:
            raise raised

    client: Any = SimpleNamespace(
        HfApi=lambda endpoint: SimpleNamespace(model_info=model_info),
        errors=SimpleNamespace(HfHubHTTPError=PermissionError),
        __spec__=SimpleNamespace(name="huggingface_hub"),
    )
    monkeypatch.setitem(sys.modules, "huggingface_hub", client)
    found = hub_facts({}, WISH)
    assert (found.asked, found.problem) == ("the hub", problem)
