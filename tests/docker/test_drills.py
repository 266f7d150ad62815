"""Every drill on the real stack, and the proof that a drill fails when the evidence of a hit is missing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from support.stack import ROOT, Stack

DRILLS = [
    "cold-start",
    "engine-restart",
    "container-restart",
    "engine-recreate",
    "engine-kill",
    "nursery-kill",
    "daemon-kill",
]
SCHEMA = ROOT / "scripts" / "warmops" / "report.schema.json"


def drill(stack: Stack, *options: str, check: bool = True) -> tuple[int, dict[str, Any]]:
    done = stack.warm("drill", "--json", *options, check=check)
    return done.returncode, json.loads(done.stdout)


def failed(report: dict[str, Any]) -> list[str]:
    return [f["name"] for run in report["runs"] for f in run["findings"] if not f["ok"]]


def newest_report(stack: Stack) -> Path:
    return max((stack.state / "reports").iterdir(), key=lambda folder: folder.stat().st_mtime)


def test_every_drill_passes_with_evidence(stack: Stack) -> None:
    """Cases 18, 20 and 28."""
    code, report = drill(stack)
    assert failed(report) == []
    assert code == 0
    assert [run["kind"] for run in report["runs"]] == DRILLS
    assert {run["outcome"] for run in report["runs"]} == {"hit"}
    assert {run["mapped_bytes"] for run in report["runs"]} >= {report["runs"][0]["mapped_bytes"]}
    assert all(run["mapped_bytes"] > 250_000_000 for run in report["runs"])
    assert len({run["answer"] for run in report["runs"]}) == 1
    for run in report["runs"]:
        names = [phase["name"] for phase in run["phases"]]
        assert {"imports", "weights", "first token"} <= set(names), names
        assert "unattributed" not in names, names
        assert run["seconds"]["first token"] >= run["seconds"]["ready"] - 1
        assert run["memory_bytes"]["weight-cache"] > 0
    folder = newest_report(stack)
    assert json.loads((folder / "report.json").read_text()) == report
    jsonschema.validate(report, json.loads(SCHEMA.read_text()))
    page = (folder / "report.html").read_text()
    assert "<svg" in page
    assert "daemon-kill #1" in page


@pytest.fixture
def served_from_disk(stack: Stack) -> Iterator[Stack]:
    """The stack with an engine that loads as vLLM does by default: right answers, no weight cache."""
    text = stack.compose_file.read_text()
    assert "--load-format=ipc_cache" in text
    lines = [line for line in text.splitlines() if "--model-loader-extra-config" not in line]
    changed = "\n".join(lines).replace("--load-format=ipc_cache", "--load-format=auto") + "\n"
    try:
        stack.compose_file.write_text(changed)
        stack.compose("up", "--detach", "--no-deps", "vllm")
        stack.wait_ready()
        yield stack
    finally:
        stack.compose_file.write_text(text)
        # `up` would roll, which takes two starts of an engine.
        stack.compose("up", "--detach", "--no-deps", "vllm")
        stack.wait_ready()


def test_a_drill_fails_without_hit_evidence_however_right_the_answer(served_from_disk: Stack) -> None:
    code, report = drill(served_from_disk, "--drill", "engine-restart", check=False)
    assert code == 1
    assert report["passed"] is False
    assert report["runs"][0]["outcome"] == "unknown"
    assert "Paris" in report["runs"][0]["answer"]
    assert "engine start" in failed(report)
    assert "Failed:" in (newest_report(served_from_disk) / "report.html").read_text()


def test_an_unknown_drill_is_refused(stack: Stack) -> None:
    done = stack.warm("drill", "--drill", "engine-restrat", check=False)
    assert done.returncode == 2
    assert "engine-restart" in done.stderr
