"""The comparison: what the other engines are, what is judged, which starts the picture shows."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes.engine import MODEL, FakeEngine
from warmops.bench import (
    TITLES,
    Comparison,
    add_arguments,
    comparison_of,
    kinds_of,
    middle_runs,
    summarise,
)
from warmops.bench_direct import ask_directly
from warmops.bench_engines import bench_config
from warmops.console import UserError
from warmops.docker import Docker
from warmops.evidence import StartEvidence
from warmops.report import Run

ENGINE: dict[str, Any] = {
    "image": "i",
    "command": ["/hub/m", "--load-format=ipc_cache", "--model-loader-extra-config={}", "--port=8000"],
    "environment": {
        "WARMSTACK_NURSERY": "on",
        "VLLM_WORKER_MULTIPROC_METHOD": "fork",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "HF_HUB_OFFLINE": "1",
    },
    "ipc": "service:weight-cache",
    "depends_on": {"weight-cache": {}},
    "volumes": [{"type": "volume", "source": "warmstack-hub", "target": "/hub"}],
}
CONFIG: dict[str, Any] = {
    "services": {"vllm": ENGINE, "weight-cache": {"shm_size": "7"}},
    "volumes": {"warmstack-hub": {"name": "warmstack-hub"}},
}


def test_the_other_engines_have_none_of_our_levers() -> None:
    made = bench_config(CONFIG, "p", ipc="container:wc")
    stock, plain = made["services"]["vllm-stock"], made["services"]["vllm-plain"]
    assert stock["command"] == ["/hub/m", "--port=8000"]
    assert stock["entrypoint"] == ["vllm", "serve"]
    assert stock["shm_size"] == "7"
    assert plain["command"] == ENGINE["command"]
    assert plain["ipc"] == "container:wc"
    assert "entrypoint" not in plain
    for service in (stock, plain):
        assert service["environment"] == {"HF_HUB_OFFLINE": "1"}
        assert service["networks"] == {"backend": {"aliases": ["vllm"]}}
        assert "depends_on" not in service
    assert made["networks"]["backend"]["name"] == "p_backend"


def test_beside_the_stacks_engine_the_others_are_in_no_network() -> None:
    made = bench_config(CONFIG, "p", ipc="container:wc", beside=True)
    assert [service["network_mode"] for service in made["services"].values()] == ["none", "none"]
    assert all("networks" not in service for service in made["services"].values())
    assert "networks" not in made


def test_an_engine_that_no_gateway_knows_is_asked_in_its_container(tmp_path: Path) -> None:
    """The client runs from its text alone: no module of ours is in a container."""
    docker = tmp_path / "docker"
    with FakeEngine() as engine:
        address = f"http://{engine.host}:{engine.port}"
        docker.write_text(f'#!/bin/sh\nshift 6\nexec {sys.executable} - {address} "$@"\n')
        docker.chmod(0o755)
        found = ask_directly(Docker(binary=str(docker)), "container", MODEL, 20)
    assert found.answer is not None, found.error
    assert found.ready_at is not None
    assert found.ready_at <= found.answer.sent_at
    assert found.answer.text == "The capital of France is Paris."


def test_one_that_ends_says_why(tmp_path: Path) -> None:
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\necho 'it was killed' >&2\nexit 137\n")
    docker.chmod(0o755)
    assert ask_directly(Docker(binary=str(docker)), "container", "m", 20).error == "it was killed"


def wanted(*words: str) -> Comparison:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return comparison_of(parser.parse_args(words))


def test_beside_the_stacks_engine_nothing_ends_its_container() -> None:
    assert wanted("--beside").kinds == ("stock", "plain", "restart")
    assert wanted("--kinds", "restart,stock", "--beside").kinds == ("stock", "restart")
    with pytest.raises(UserError, match=r"container, cold would end"):
        wanted("--kinds", "stock,container,restart,cold", "--beside")
    assert wanted().kinds == ("stock", "plain", "container", "restart")
    assert not wanted("--no-first").first


def test_the_state_of_the_page_cache_is_told() -> None:
    for first, words in ((True, "not counted"), (False, "the weight cache read")):
        bench = summarise(RUNS, "Paris.", first=first)
        assert bench is not None
        assert words in bench.page_cache


def start(kind: str, seconds: float | None, repetition: int = 1, answer: str = "Paris.") -> Run:
    return Run(
        kind=kind,
        repetition=repetition,
        evidence=StartEvidence(outcome="hit"),
        findings=(),
        phases=(),
        seconds={} if seconds is None else {"first token": seconds},
        answer=answer,
    )


RUNS = [start(kind, at + n, n) for n in (3, 1, 2) for at, kind in enumerate(TITLES)]


def test_each_kind_is_a_series_and_stock_is_what_they_are_measured_by() -> None:
    bench = summarise(RUNS, "Paris.")
    assert bench is not None
    assert [one.kind for one in bench.series] == ["stock", "plain", "container", "restart"]
    assert [one.median for one in bench.series] == [2, 3, 4, 5]
    assert bench.of_first(bench.series[3]) == 2.5
    assert bench.same_answer


@pytest.mark.parametrize("expected", ["Berlin.", None])
def test_another_answer_is_told(expected: str | None) -> None:
    bench = summarise(RUNS, expected)
    assert bench is not None
    assert not bench.same_answer


def test_a_kind_that_never_answered_makes_no_comparison() -> None:
    assert (
        summarise([replace(run, seconds={}) if run.kind == "plain" else run for run in RUNS], "Paris.")
        is None
    )


def test_the_picture_shows_the_middle_start_of_each_kind() -> None:
    assert [(run.kind, run.repetition) for run in middle_runs(RUNS)] == [(kind, 2) for kind in TITLES]
    assert middle_runs([start("stock", None)]) == []


def test_kinds_are_in_the_order_of_the_comparison() -> None:
    assert kinds_of("restart, stock") == ("stock", "restart")
    assert kinds_of(",".join(TITLES)) == tuple(TITLES)


@pytest.mark.parametrize("text", ["stock,warm", "restart", ""])
def test_kinds_that_compare_nothing_are_wrong_input(text: str) -> None:
    with pytest.raises(UserError) as wrong:
        kinds_of(text)
    assert wrong.value.exit_code == 2
