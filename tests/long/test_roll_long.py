"""Rolls that take several engine starts each: lost weights, `up` that takes over, a pair of engines."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from support.rolls import STEPS, Asking, count_of_sequences, engines, roll, rolled, route, until
from support.stack import Stack
from support.waiting import wait_until


@pytest.fixture(autouse=True)
def unchanged_weights(stack: Stack) -> Iterator[None]:
    """No roll, whatever becomes of it, touches the container that holds the weights."""
    before = engines(stack)["weight-cache"]
    yield
    assert engines(stack)["weight-cache"] == before


def test_weights_lost_in_the_middle(stack: Stack) -> None:
    before = engines(stack)
    with roll(stack) as process:
        until(stack, process, STEPS[0])
        (pid,) = stack.weight_cache_status()["rank_pids"]
        stack.compose("exec", "-T", "weight-cache", "sh", "-c", f"kill -9 {pid}")
        told, said = process.communicate(timeout=300)
    report = json.loads(told)
    assert (process.returncode, report["outcome"]) == (1, "undone"), said
    assert "the weight cache holds no weights now" in report["error"]
    assert engines(stack) == before
    assert "Paris" in stack.ask()
    wait_until(
        lambda: stack.weight_cache_status()["state"],
        wanted=lambda state: state == "held",
        seconds=300,
        what="weights held again",
    )


def test_up_undoes_a_roll_that_was_killed_and_rolls_to_its_own_wish(stack: Stack) -> None:
    before = engines(stack)
    with roll(stack, "--set", "engine.max_num_seqs=5") as process:
        until(stack, process, "drain vllm")
    assert engines(stack).keys() == {"vllm", "vllm-surge", "weight-cache"}
    facts = json.loads(stack.warm("status", "--json").stdout)
    assert facts["advice"] == [
        {
            "problem": "a roll did not end: it stands at `drain vllm`",
            "command": f"make roll PROJECT={stack.project}",
        }
    ]
    wish = ("--set", "engine.max_num_seqs=6", "--set", "gateway.hold_seconds=599", "--json")
    done = stack.up(*wish)
    assert "a roll did not end at `drain vllm`: undoing it" in done.stderr
    changes = json.loads(done.stdout)["changes"]
    assert (changes["vllm"], changes["gateway"]) == ("roll", "recreate")
    assert count_of_sequences(stack) == "6"
    assert stack.service_environment("gateway")["WARMSTACK_HOLD"] == "599s"
    after = engines(stack)
    assert after.keys() == {"vllm", "weight-cache"}
    assert after["vllm"] != before["vllm"]


@pytest.fixture(scope="module")
def pair(stack: Stack) -> Iterator[Stack]:
    """The stack with a standby, and without one afterwards."""
    # The setting that the test before leaves behind, so that only the second engine is started.
    stack.up("--set", "engine.max_num_seqs=6", "--set", "engine.standby=true")
    yield stack
    stack.up()


def serving(stack: Stack) -> str | None:
    facts = json.loads(stack.warm("status", "--json", check=False).stdout)
    return facts["serving_engine"] if facts["serving_engine"] is None else str(facts["serving_engine"])


def test_a_standby_takes_over_when_the_first_engine_dies_and_the_pair_restores_itself(pair: Stack) -> None:
    before = engines(pair)
    assert before.keys() == {"vllm", "vllm-surge", "weight-cache"}
    assert {name: engine["ready"] for name, engine in route(pair)["engines"].items()} == {
        "vllm": True,
        "vllm-surge": True,
    }
    assert serving(pair) == "vllm"
    pair.compose("exec", "-T", "vllm", "sh", "-c", "kill -9 $(cat /proc/1/task/1/children)")
    begun = time.monotonic()
    assert "Paris" in pair.ask()
    # Far from a start of an engine, which takes 12 s and more here.
    assert time.monotonic() - begun < 8
    wait_until(
        lambda: route(pair)["engines"]["vllm"]["ready"], seconds=300, what="the first engine ready again"
    )
    assert serving(pair) == "vllm"
    assert engines(pair) == before
    assert json.loads(pair.warm("status", "--json").stdout)["advice"] == []


def test_a_restart_of_a_pair_holds_up_nobody(pair: Stack) -> None:
    with Asking(pair) as client:
        wait_until(lambda: client.answers, seconds=60, what="a first answer")
        outcome = pair.restart_engine()
    assert client.failed == []
    assert (outcome["outcome"], outcome["same_answer"]) == ("hit", True)
    assert (outcome["drained"]["left"], outcome["drained"]["cut_streams"]) == (0, 0)
    assert route(pair)["order"] == ["vllm", "vllm-surge"]


def test_a_pair_that_cannot_roll_is_made_anew_one_after_the_other(pair: Stack) -> None:
    before = engines(pair)
    pair.compose("stop", "vllm")
    with Asking(pair) as client:
        done = pair.up("--set", "engine.max_num_seqs=9", "--set", "engine.standby=true")
        counted = len(client.answers)
        wait_until(lambda: len(client.answers) > counted, seconds=60, what="an answer after it")
    assert "no roll: vllm is not ready" in done.stderr
    turns = [line for line in done.stderr.splitlines() if "while the other engine serves" in line]
    assert [line.split()[1] for line in turns] == ["vllm", "vllm-surge"], done.stderr
    assert client.failed == []
    after = engines(pair)
    assert [name for name in before if before[name] == after[name]] == ["weight-cache"]
    assert count_of_sequences(pair) == "9"


def test_a_roll_of_a_pair_replaces_both(pair: Stack) -> None:
    before = engines(pair)
    with Asking(pair) as client:
        code, report, said = rolled(pair, "--set", "engine.max_num_seqs=7")
    assert (code, report["outcome"]) == (0, "rolled"), said
    assert client.failed == []
    after = engines(pair)
    assert after.keys() == before.keys()
    assert [name for name in before if before[name] == after[name]] == ["weight-cache"]
    assert count_of_sequences(pair) == "7"
    assert json.loads(pair.warm("verify", "--json").stdout)["differences"] == []
