"""Rolls on the real stack: one that goes through, one killed at every step, and those that are undone."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from support.stack import QUESTION, Stack, docker
from support.waiting import wait_until

STEPS = (
    "start vllm-surge",
    "prove vllm-surge",
    "send requests to vllm-surge",
    "drain vllm",
    "replace vllm",
    "prove vllm",
    "send requests to vllm",
    "drain vllm-surge",
    "put vllm-surge away",
)
OF_ANOTHER_MODEL = "services: {vllm-surge: {environment: {WARMSTACK_IDENTITY: '" + "0" * 64 + "'}}}\n"
WITHOUT_MEMORY = "services: {vllm-surge: {mem_limit: 200m, memswap_limit: 200m}}\n"


def record(stack: Stack) -> dict[str, Any]:
    """The roll that is under way; empty when none is."""
    with contextlib.suppress(FileNotFoundError):
        return dict(json.loads((stack.state / "roll.json").read_text()))
    return {}


def route(stack: Stack) -> dict[str, Any]:
    return dict(json.loads(stack.compose("exec", "-T", "gateway", "warmstack-gateway-route", "show")))


def engines(stack: Stack) -> dict[str, tuple[str, str]]:
    """Container id and start of both engines and the weight cache, as far as they are there."""
    label = f"label=com.docker.compose.project={stack.project}"
    found: dict[str, tuple[str, str]] = {}
    for one in json.loads(docker("inspect", *docker("ps", "-aq", "--filter", label).split())):
        service = one["Config"]["Labels"]["com.docker.compose.service"]
        if service in ("vllm", "vllm-surge", "weight-cache"):
            found[service] = (one["Id"], one["State"]["StartedAt"])
    return found


def count_of_sequences(stack: Stack) -> str:
    words = stack.inspect("vllm")["Config"]["Cmd"]
    return next(word.partition("=")[2] for word in words if word.startswith("--max-num-seqs="))


@contextlib.contextmanager
def roll(stack: Stack, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A roll that has begun; one that still runs at the end of the block is killed."""
    process = stack.begin("roll", "--json", *options)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def rolled(stack: Stack, *options: str) -> tuple[int, dict[str, Any], str]:
    done = stack.warm("roll", "--json", *options, check=False)
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def until(stack: Stack, process: subprocess.Popen[str], step: str) -> None:
    """Until the roll stands at the step."""
    deadline = time.monotonic() + 300
    while record(stack).get("step") != step:
        if process.poll() is not None or time.monotonic() > deadline:
            raise AssertionError(f"never at {step}: {record(stack)}\n{process.communicate()[1]}")
        time.sleep(0.005)


class Asking(threading.Thread):
    """A client that asks all the time; `failed` holds what did not end in an answer."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(daemon=True)
        self.url, self.body = (
            f"{stack.gateway_url}/v1/chat/completions",
            {
                "model": stack.model,
                "messages": [{"role": "user", "content": QUESTION}],
                "temperature": 0,
                "max_tokens": 24,
                "stream": True,
            },
        )
        self.answers: list[str] = []
        self.failed: list[str] = []
        self._end = threading.Event()

    def run(self) -> None:
        while not self._end.is_set():
            try:
                with requests.post(self.url, json=self.body, stream=True, timeout=300) as answer:
                    lines = [line for line in answer.iter_lines() if line]
                text = b"\n".join(lines).decode()
                whole = answer.status_code == 200 and text.endswith("[DONE]") and '"error"' not in text
                (self.answers if whole else self.failed).append(text[-300:])
            except requests.RequestException as error:
                self.failed.append(str(error))

    def __enter__(self) -> Asking:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self.join(300)


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
    assert stack.restart_engine()["outcome"] == "hit"
    stack.up()  # the gateway of the other tests


@pytest.fixture(scope="module")
def pair(stack: Stack) -> Iterator[Stack]:
    """The stack with a standby, and without one afterwards."""
    stack.up("--set", "engine.standby=true")
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
    victim = pair.compose("exec", "-T", "vllm", "sh", "-c", "cat /proc/1/task/1/children").split()
    pair.compose("exec", "-T", "vllm", "kill", "-9", *victim)
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
