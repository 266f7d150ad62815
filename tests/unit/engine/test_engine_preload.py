"""How the ranks of `vllm preload` begin: real processes, made as vLLM makes them."""

import json
import os
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

from support.pid_one import CODE
from warmstack_preload.ranks import fork_ranks


def preload(*arguments: str, path: str = CODE, before: str = "") -> tuple[list[dict[str, Any]], list[str]]:
    """Marks and other lines of a command that has one rank; `before` is run first in its process."""
    run = "import runpy\nrunpy.run_module('warmstack_preload', run_name='__main__', alter_sys=True)"
    told = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"{before}\n{run}", *arguments],
        env={"PYTHONPATH": path, "PATH": os.environ["PATH"], "FAKE_VLLM": '{"rank": true}'},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    lines = told.stdout.splitlines()
    assert told.returncode == 0, told.stderr
    marks = [json.loads(line.partition(" ")[2]) for line in lines if line.startswith("warmstack: ")]
    return marks, [line for line in lines if not line.startswith("warmstack: ")]


def facts(mark: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in mark.items() if name != "t"}


def test_a_rank_begins_with_what_its_parent_imported_and_before_its_threads() -> None:
    marks, lines = preload("--model", "/m")
    assert [facts(mark) for mark in marks] == [{"event": "ranks", "start": "forked", "sentence": None}]
    assert lines == ['rank: {"inherited": true, "health": false, "threads": 1}']


def test_ranks_are_spawned_where_it_is_wanted() -> None:
    marks, lines = preload("--spawn-ranks", "--model", "/m")
    assert marks == []
    assert lines == ['rank: {"inherited": false, "health": false, "threads": 1}']


def test_ranks_are_spawned_where_a_fork_would_spoil_them() -> None:
    thread = "threading.Thread(target=time.sleep, args=(9,), daemon=True, name='busy').start()"
    marks, lines = preload("--model", "/m", before=f"import threading, time\n{thread}")
    expected = {"event": "ranks", "start": "spawned", "sentence": "there are threads: busy"}
    assert [facts(mark) for mark in marks] == [expected]
    assert 'rank: {"inherited": false, "health": false, "threads": 1}' in lines


def test_another_vllm_is_left_alone(capfd: pytest.CaptureFixture[str]) -> None:
    other = ModuleType("vllm.entrypoints.cli.preload")
    fork_ranks(other)
    assert vars(other).get("multiprocessing") is None
    assert "does not use multiprocessing as known" in capfd.readouterr().out
