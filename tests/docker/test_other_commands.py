"""Commands of a user that no other test on the real stack gives: logs, load, and clean-compile's refusal."""

from __future__ import annotations

import json
from pathlib import Path

from support.stack import Stack


def test_logs_are_those_of_one_service_or_of_all(stack: Stack) -> None:
    stack.wait_ready()
    one = stack.warm("logs", "--service", "vllm", "--no-follow", "--tail", "1000").stdout.splitlines()
    assert any('"event": "ready"' in line for line in one)
    assert {line.split(" ")[0] for line in one} == {"vllm-1"}
    every = stack.warm("logs", "--no-follow", "--tail", "5").stdout.splitlines()
    assert {"vllm-1", "gateway-1"} <= {line.split(" ")[0] for line in every}


def test_a_load_is_judged_and_reported(stack: Stack) -> None:
    stack.wait_ready()
    done = stack.warm("load", "--clients", "2", "--seconds", "4", "--tokens", "8", "--json")
    report = json.loads(done.stdout)
    assert (report["event"], report["passed"]) == ("none", True)
    (run,) = report["runs"]
    assert run["counts"]["sent"] == run["counts"]["answered"] > 2
    page = max((stack.state / "reports").iterdir(), key=lambda folder: folder.stat().st_mtime)
    assert json.loads((page / "report.json").read_text()) == report
    assert "Passed:" in Path(page / "report.html").read_text()


def test_compiled_kernels_stay_while_an_engine_runs(stack: Stack) -> None:
    done = stack.warm("clean-compile", check=False)
    assert done.returncode == 1
    assert f"hint: make down PROJECT={stack.project} stops it and keeps the weights held" in done.stderr
