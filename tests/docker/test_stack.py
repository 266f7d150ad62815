"""The real CPU stack as a user drives it: up, up again, status, restart, down, and what is refused."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.checkpoints import write_other_checkpoint
from support.rolls import Asking, route
from support.stack import SERVICES, Stack, docker, identities, warm
from support.waiting import wait_until
from warmops.docker import Docker
from warmops.evidence import parse_mark
from warmops.hostfacts import nvidia_is_usable


def test_the_stack_answers(stack: Stack) -> None:
    assert "Paris" in stack.ask()


def test_status_of_a_healthy_stack(stack: Stack) -> None:
    facts = json.loads(stack.warm("status", "--json").stdout)
    assert facts["serving"] is True
    assert facts["advice"] == []
    assert facts["identity"]["equal"] is True
    assert facts["engine"]["outcome"] == "hit"
    assert facts["weight_cache"]["bytes_held"] > 250_000_000
    assert {row["service"]: row["state"] for row in facts["services"]} == dict.fromkeys(SERVICES, "running")


def test_restart_is_a_hit_with_the_same_answer(stack: Stack) -> None:
    before = identities(stack)
    outcome = stack.restart_engine()
    after = identities(stack)
    assert outcome["outcome"] == "hit"
    assert outcome["same_answer"] is True
    assert outcome["mapped_bytes"] > 250_000_000
    assert outcome["old_processes_alive"] == []
    assert 0 < outcome["seconds"]["ready"] < outcome["seconds"]["first token"] + 1
    assert outcome["unattributed"] < 0.05
    assert before == after, "a new process in the old container"


def test_a_restart_under_load_cuts_no_stream(stack: Stack) -> None:
    with Asking(stack) as client:
        wait_until(lambda: client.answers, seconds=60, what="a first answer")
        outcome = stack.restart_engine()
        counted = len(client.answers)
        wait_until(lambda: len(client.answers) > counted, seconds=60, what="an answer after it")
    assert client.failed == []
    assert (outcome["drained"]["left"], outcome["drained"]["cut_streams"]) == (0, 0)
    assert outcome["outcome"] == "hit"
    assert route(stack)["paused_seconds"] == 0


def test_the_ranks_of_the_weight_cache_are_forked(stack: Stack) -> None:
    """They need not import vLLM again; the marks of its log say so, and why where they could not be."""
    lines = docker("logs", stack.container("weight-cache")).splitlines()
    marks = [mark for line in lines if (mark := parse_mark(line)) is not None]
    told = [(mark.fields["start"], mark.fields["sentence"]) for mark in marks if mark.event == "ranks"]
    looked = [mark.fields["start"] for mark in marks if mark.event == "model-inspection"]
    assert told
    assert set(told) == {("forked", None)}
    assert set(looked) == {"forked"}


def test_torch_does_not_wait_for_a_name_server(stack: Stack) -> None:
    """Where DNS does not answer, as in this network, a load waited for it for 10 s and then said so."""
    said = docker("logs", stack.container("weight-cache"), merged=True)
    assert "rank 0 in world size 1 is assigned" in said
    assert "hostname of the client socket cannot be retrieved" not in said


def test_another_model_is_refused_while_weights_are_held(stack: Stack, tmp_path: Path) -> None:
    before, file = identities(stack), stack.compose_file.read_bytes()
    write_other_checkpoint(stack, tmp_path)
    done = stack.up("--model", str(tmp_path), check=False)
    assert done.returncode == 1, done.stderr
    assert "would drop the weights that are held" in done.stderr
    assert "REPLACE_WEIGHTS=yes" in done.stderr
    assert (identities(stack), stack.compose_file.read_bytes()) == (before, file)
    assert "Paris" in stack.ask()


def test_a_killed_engine_is_healed_by_up(stack: Stack) -> None:
    cache = identities(stack)["weight-cache"]
    docker("kill", stack.container("vllm"))
    facts = json.loads(stack.warm("status", "--json", check=False).stdout)
    assert facts["serving"] is False
    assert facts["advice"][0] == {
        "problem": "vllm is exited (code 137)",
        "command": f"make up PROJECT={stack.project}",
    }
    done = stack.up()
    assert "vllm" in done.stderr
    assert "healing" in done.stderr
    assert identities(stack)["weight-cache"] == cache
    assert json.loads(stack.warm("status", "--json").stdout)["engine"]["outcome"] == "hit"


def test_a_killed_weight_cache_is_healed_by_up(stack: Stack) -> None:
    """Case 17."""
    docker("kill", stack.container("weight-cache"))
    # The engine lives on in its own PID namespace, with the memory that it mapped.
    assert "Paris" in stack.ask()
    done = stack.up()
    assert "weight cache" in done.stderr
    facts = json.loads(stack.warm("status", "--json").stdout)
    assert (facts["engine"]["outcome"], facts["identity"]["equal"]) == ("hit", True)


def test_the_engine_tells_where_the_seconds_of_its_start_went(stack: Stack) -> None:
    read = (
        "from urllib.request import urlopen; print(urlopen('http://127.0.0.1:8902/metrics').read().decode())"
    )
    text = stack.compose("exec", "-T", "vllm", "python3", "-c", read)
    values = {
        name: float(value)
        for name, value in (line.rsplit(" ", 1) for line in text.splitlines() if line[:1] == "w")
    }
    prefix = "warmstack_engine_start_phase_seconds"
    phases = {name: value for name, value in values.items() if name.startswith(prefix)}
    total = values["warmstack_engine_start_seconds"]
    assert values["warmstack_engine_ready"] == 1
    assert {f'{prefix}{{phase="{phase}"}}' for phase in ("weights", "server")} <= phases.keys()
    assert sum(phases.values()) == pytest.approx(total, abs=0.1)
    assert phases.get(f'{prefix}{{phase="unattributed"}}', 0.0) < 0.05 * total


def test_down_keeps_the_weights_and_the_next_up_is_warm(stack: Stack) -> None:
    """Case 23. What was compiled may go meanwhile: the weights are held all the same."""
    cache = identities(stack)["weight-cache"]
    refused = stack.warm("clean-compile", check=False)
    assert refused.returncode == 1
    assert "vllm of" in refused.stderr
    done = stack.warm("down")
    assert "stays and holds" in done.stderr
    assert stack.compose("ps", "--services").split() == ["weight-cache"]
    removed = json.loads(stack.warm("clean-compile", "--json").stdout)["removed"]
    assert removed
    assert set(removed).isdisjoint(docker("volume", "ls", "--quiet").split())
    assert stack.weight_cache_status()["state"] == "held"
    facts = json.loads(stack.up("--json").stdout)
    assert facts["outcome"] == "hit"
    assert identities(stack)["weight-cache"] == cache


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_port_in_use(nobody: str, taken_port: int) -> None:
    done = warm("up", "--project", nobody, "--env", "cpu", "--port", str(taken_port), check=False)
    assert done.returncode == 1
    assert f"ports: 127.0.0.1:{taken_port} is in use" in done.stderr
    assert f"hint: make up ENV=cpu PROJECT={nobody} PORT={taken_port + 1}" in done.stderr


def test_a_gpu_environment_where_docker_hands_over_none(nobody: str, taken_port: int) -> None:
    """Case 26: said before any network or container exists, with all that is missing beside it."""
    done = warm("up", "--project", nobody, "--env", "gpu", "--port", str(taken_port), check=False)
    assert f"error: ports: 127.0.0.1:{taken_port} is in use" in done.stderr
    has_gpus = nvidia_is_usable(Docker())
    assert done.returncode == (1 if has_gpus else 3)
    for words in (
        "error: gpu runtime: Docker has no NVIDIA runtime",
        "hint: install nvidia-container-toolkit",
    ):
        assert (words in done.stderr) is not has_gpus


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--env", "nowhere"), 2, "there is no such environment"),
        (("--env", "cpu", "--set", "engine.max_num_seq=4"), 2, "max_num_seqs"),
        (("--env", "cpu", "--set", "engine.max_num_seqs=four"), 2, "engine.max_num_seqs"),
        (("--env", "cpu", "--model", "/no/such/folder"), 2, "there is no folder"),
        (("--env", "cpu", "--model", "Nobody/No-Such-Model"), 3, "no hub answers"),
    ],
)  # fmt: skip
def test_refused_before_anything_is_created(
    nobody: str, options: tuple[str, ...], code: int, words: str, free_ports: tuple[str, ...]
) -> None:
    done = warm("up", "--project", nobody, *options, *free_ports, check=False)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "hint: " in done.stderr


def test_a_folder_without_safetensors(nobody: str, tmp_path: Path, free_ports: tuple[str, ...]) -> None:
    (tmp_path / "config.json").write_text("{}")
    tmp_path.chmod(0o755)
    options = ("--project", nobody, "--env", "cpu", "--model", str(tmp_path), *free_ports)
    done = warm("up", *options, check=False)
    assert done.returncode == 2, done.stderr
    assert "no *.safetensors" in done.stderr
