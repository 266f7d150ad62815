"""Rolls on the real stack: one that goes through, one killed at every step, and those that are undone."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.rolls import (
    STEPS,
    Asking,
    count_of_sequences,
    engines,
    record,
    roll,
    rolled,
    route,
    until,
)
from support.stack import Stack
from support.waiting import wait_until

OF_ANOTHER_MODEL = "services: {vllm-surge: {environment: {WARMSTACK_IDENTITY: '" + "0" * 64 + "'}}}\n"
WITHOUT_MEMORY = "services: {vllm-surge: {mem_limit: 200m, memswap_limit: 200m}}\n"


@pytest.fixture(autouse=True)
def unchanged_weights(stack: Stack) -> Iterator[None]:
    """No roll, whatever becomes of it, touches the container that holds the weights."""
    before = engines(stack)["weight-cache"]
    yield
    assert engines(stack)["weight-cache"] == before


@pytest.mark.parametrize(
    ("override", "words"),
    [
        (OF_ANOTHER_MODEL, "vllm-surge: missed the weight cache (mismatch)"),
        (WITHOUT_MEMORY, "vllm-surge: vllm serve ended before it was ready, killed by SIGKILL"),
    ],
    ids=["of another model", "without memory"],
)
def test_a_second_engine_that_cannot_start_leaves_the_first_one_serving(
    stack: Stack, tmp_path: Path, override: str, words: str
) -> None:
    before, file = engines(stack), stack.compose_file.read_bytes()
    (tmp_path / "override.yaml").write_text(override)
    code, report, said = rolled(stack, "--override", str(tmp_path / "override.yaml"))
    assert (code, report["outcome"], report["passed"]) == (1, "undone", False), said
    assert words in report["error"]
    assert "vllm serves on as before" in report["error"]
    assert f".warmstack/{stack.project}/vllm-surge.log" in said
    assert (engines(stack), stack.compose_file.read_bytes(), record(stack)) == (before, file, {})
    assert not (stack.state / "override.yaml").exists()
    assert route(stack)["order"] == ["vllm", "vllm-surge"]
    assert json.loads(stack.warm("status", "--json").stdout)["advice"] == []


def test_a_roll_to_another_setting_is_noticed_by_nobody(stack: Stack) -> None:
    before = engines(stack)
    with Asking(stack) as client, roll(stack, "--set", "engine.max_num_seqs=4") as process:
        until(stack, process, STEPS[0])
        for command in ("roll", "restart", "down", "drill", "up"):
            refused = stack.up(check=False) if command == "up" else stack.warm(command, check=False)
            assert refused.returncode == 1, refused.stderr
            assert f"`warm roll` (process {process.pid}) is at work" in refused.stderr
        told, said = process.communicate(timeout=600)
        counted = len(client.answers)
        wait_until(lambda: len(client.answers) > counted, seconds=120, what="an answer after the roll")
    report = json.loads(told)
    assert process.returncode == 0, said
    assert (report["outcome"], report["error"], report["cut_streams"]) == ("rolled", None, 0)
    assert tuple(step["name"] for step in report["steps"]) == STEPS
    assert client.failed == []
    after = engines(stack)
    assert after.keys() == {"vllm", "weight-cache"}
    assert after["vllm"] != before["vllm"]
    assert count_of_sequences(stack) == "4"
    assert (route(stack)["order"], record(stack)) == (["vllm", "vllm-surge"], {})
    facts = json.loads(stack.warm("status", "--json").stdout)
    assert (facts["engine"]["outcome"], facts["advice"]) == ("hit", [])
    assert json.loads(stack.warm("verify", "--json").stdout)["differences"] == []


def test_a_roll_killed_at_every_step_is_finished_by_the_next_one(stack: Stack) -> None:
    """Each run is killed one step further on, the gateway restarted in the middle; the last run finishes."""
    wish = ("--set", "engine.max_num_seqs=8")
    killed = []
    for step in STEPS:
        with roll(stack, *wish) as process:
            until(stack, process, step)
            process.send_signal(signal.SIGKILL)
            process.wait()
        killed.append(record(stack)["step"])
        if step == "drain vllm":
            stack.compose("restart", "gateway")
    assert tuple(killed) == STEPS
    code, report, said = rolled(stack, *wish)
    assert (code, report["outcome"]) == (0, "rolled"), said
    assert "a roll did not end at `put vllm-surge away`: going on with it" in said
    assert engines(stack).keys() == {"vllm", "weight-cache"}
    assert count_of_sequences(stack) == "8"
    assert (route(stack)["order"], record(stack)) == (["vllm", "vllm-surge"], {})
    assert "Paris" in stack.ask()
    stack.up()  # so that the setting is remembered no more
