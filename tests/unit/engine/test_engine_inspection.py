"""vLLM's look at a model's class in a forked child: its answer, its failure, and where none may be forked."""

import json
import os
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from warmstack_shared import inspection
from warmstack_shared.forking import result_in_child
from warmstack_shared.inspection import inspect_in_child


def test_a_child_answers_and_leaves_no_trace() -> None:
    seen: list[int] = []

    def look() -> tuple[int, str]:
        seen.append(1)
        return os.getpid(), "x" * 200_000

    pid, text = result_in_child(look)
    assert pid != os.getpid()
    assert len(text) == 200_000
    assert seen == []


def test_what_fails_in_a_child_is_told() -> None:
    def fail() -> None:
        raise ValueError("no such class")

    with pytest.raises(RuntimeError, match=r"in a forked process: Traceback[\s\S]*ValueError: no such class"):
        result_in_child(fail)
    with pytest.raises(RuntimeError, match="ended with wait status 768"):
        result_in_child(lambda: os._exit(3))
    with pytest.raises(RuntimeError, match="in a forked process: Traceback"):
        result_in_child(lambda: threading.Lock())  # not to be pickled


def registry_of(**names: Any) -> ModuleType:
    module = ModuleType("registry")
    vars(module).update(names)
    return module


def stock(function: Callable[[], object]) -> object:
    return "stock", function()


def told(capfd: pytest.CaptureFixture[str]) -> list[tuple[str, str | None]]:
    marks = [json.loads(line.partition(" ")[2]) for line in capfd.readouterr().out.splitlines()]
    return [(mark["start"], mark["sentence"]) for mark in marks]


def test_a_process_that_may_be_forked_asks_its_child(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(inspection, "why_unfit", lambda: None)
    registry = registry_of(_run_in_subprocess=stock)
    inspect_in_child(registry)
    pid = registry._run_in_subprocess(os.getpid)
    assert isinstance(pid, int)
    assert pid != os.getpid()
    assert told(capfd) == [("forked", None)]


def test_else_all_is_as_vllm_does_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(inspection, "why_unfit", lambda: "CUDA is initialised")
    registry = registry_of(_run_in_subprocess=stock)
    inspect_in_child(registry)
    assert registry._run_in_subprocess(os.getpid) == ("stock", os.getpid())
    changed = registry_of()
    inspect_in_child(changed)
    assert not hasattr(changed, "_run_in_subprocess")
    assert told(capfd) == [
        ("command", "CUDA is initialised"),
        ("as vLLM does it", "registry has no _run_in_subprocess"),
    ]
