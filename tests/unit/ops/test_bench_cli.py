"""`warm bench-cli`: what is timed and when it passes; and what the quick commands must not import."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.stack import ROOT
from warmops.bench_cli import Timing, command_lines, measure

# Each of these costs more than the rest of a command, or has no business outside the images.
HEAVY = ("torch", "vllm", "transformers", "numpy", "huggingface_hub", "requests", "rich")
QUICK = ("render", "plan", "verify", "doctor", "explain", "lock", "bench_cli")


def heavy_after(code: str) -> list[str]:
    """Which heavy packages a fresh Python has loaded after this code."""
    ask = f"{code}\nimport sys, json; print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    paths = os.pathsep.join((str(ROOT / "compose"), str(ROOT / "scripts")))
    done = subprocess.run(
        [sys.executable, "-c", ask],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    )
    return list(json.loads(done.stdout.splitlines()[-1]))


def test_no_quick_command_imports_anything_heavy() -> None:
    modules = ", ".join(f"warmops.{module}" for module in QUICK)
    assert heavy_after(f"import warmops.cli, {modules}") == []


@pytest.mark.parametrize("line", [["render", "--check", "--json"], ["plan", "--env", "gpu-tp2", "--json"]])
def test_nor_does_it_while_it_runs(line: list[str]) -> None:
    assert heavy_after(f"from warmops.cli import main; main({line!r})") == []


def test_the_test_above_sees_what_is_imported() -> None:
    assert heavy_after("import requests") == ["requests"]


def test_verify_is_timed_where_something_runs() -> None:
    assert [line[0] for line in command_lines("cpu", None)] == ["render", "plan", "doctor"]
    assert command_lines("cpu", "p")[-1] == ("verify", "--project", "p")


@pytest.mark.parametrize(
    ("runs", "problem", "passed"),
    [
        ((0.4, 2.0, 0.5), None, True),
        ((0.4, 2.0, 1.5), None, False),
        ((0.1,), "exit code 3: no Docker", False),
    ],
)
def test_the_median_counts(runs: tuple[float, ...], problem: str | None, passed: bool) -> None:
    assert Timing(command="x", runs=runs, problem=problem).passed is passed


@pytest.mark.parametrize(("code", "runs", "problem"), [(0, 2, None), (1, 2, None), (3, 1, "exit code 3: oh")])
def test_an_answer_is_timed_and_an_error_is_told(
    tmp_path: Path, code: int, runs: int, problem: str | None
) -> None:
    program = tmp_path / "warm"
    program.write_text(f"#!/bin/sh\necho oh >&2\nexit {code}\n")
    program.chmod(0o755)
    found = measure(("plan",), repeat=2, program=str(program))
    assert (len(found.runs), found.problem) == (runs, problem)
    assert all(value > 0 for value in found.runs)
