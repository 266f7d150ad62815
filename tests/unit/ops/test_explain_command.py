"""`warm explain`: the fields of a container as `docker inspect` shows it, and whose wish is explained."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from support.wishes import CPU, CUDA, plan_of
from warmops import wanted
from warmops.explain import as_facts, fields_of
from warmops.project import Remembered, write_remembered
from warmops.wanted import find_wanted
from warmops.wishes import add_wishes
from warmplan import GpuFacts, HostFacts, Plan, explain_identity


def inspected(plan: Plan) -> dict[str, Any]:
    """What `docker inspect` tells of the weight cache of a plan."""
    service = plan.weight_cache
    environment = [f"{name}={value}" for name, value in service.environment]
    return {"Config": {"Cmd": list(service.command), "Env": environment, "Image": service.image}}


@pytest.mark.parametrize("text", [CPU, CUDA, CUDA + "engine: {arguments: {kv-cache-dtype: fp8}}"])
def test_a_container_of_the_plan_would_hit(text: str) -> None:
    plan = plan_of(text)
    assert explain_identity(plan.identity, fields_of(inspected(plan))).hit


def test_the_report_names_the_field_that_differs() -> None:
    wanted = plan_of(CUDA.replace("Org/Model", "Org/Model, dtype: float16"))
    found = explain_identity(wanted.identity, fields_of(inspected(plan_of(CUDA))))
    facts = as_facts(found, project="p", identity=wanted.identity.value)
    assert (facts["hit"], facts["sentence"]) == (False, "would miss: dtype differs")
    assert [field["name"] for field in facts["fields"] if not field["equal"]] == ["dtype"]


def arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_wishes(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize(
    ("words", "dtype", "port"),
    [
        ([], "float16", 8123),
        (["--project", "p"], "float16", 8123),
        (["--port", "9000"], "float16", 9000),
        (["--set", "model.dtype=float32"], "float32", 8123),
        (["--env", "cpu"], "bfloat16", 8000),
        (["--project", "other"], "bfloat16", 8000),
    ],
)
def test_the_wish_is_that_of_the_last_up_unless_an_environment_is_named(
    tmp_path: Path, words: list[str], dtype: str, port: int
) -> None:
    settings = Remembered(
        environment="cpu",
        overrides={"model.dtype": "float16", "gateway.port": "8123"},
        model="m",
        served_model="m",
        identity="ab" * 32,
        platform="cpu",
        ranks=1,
        gateway_url="http://127.0.0.1:8123",
        webui_url=None,
        needs_api_key=False,
    )
    write_remembered(tmp_path / "p", settings)
    spec = find_wanted(arguments(*words), lambda: False, state=tmp_path).spec
    assert (spec.model.dtype, spec.gateway.port) == (dtype, port)


def test_what_nobody_wrote_about_gpus_the_host_says_as_for_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = GpuFacts(uuid="GPU-1", total_bytes=140 * 2**30, free_bytes=0, architecture="sm90")
    host = HostFacts(cores=1, memory_bytes=1, gpus=(gpu,))
    monkeypatch.setattr(wanted, "read_host", lambda docker, platform: host)
    (tmp_path / "environment.yaml").write_text("platform: cuda\nmodel: {name: Org/Model}\n")
    found = wanted.read_wanted(tmp_path, ()).spec
    assert (found.gpu.memory_gib, found.gpu.architecture) == (140.0, "sm90")
