"""What a roll stands on: its record, the gateway's account, room, answers, failed starts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from support.wishes import CPU, CUDA, plan_of
from warmops.answers import AnswerError, completion_request, completion_text
from warmops.changes import Change, Changes, Container
from warmops.engine_answers import same_answer
from warmops.evidence import LogLine, start_failure
from warmops.roll_record import Record, forget_record, read_record, write_record
from warmops.roll_run import changes_engine_alone, room_problem
from warmops.route import Route, RoutedEngine, parse_route
from warmplan import GpuFacts

GIB = 1024**3
RECORD = Record(
    begun_at=1.0,
    old={"vllm": "old"},
    hashes={"vllm": ("h", "h-joined"), "vllm-surge": ("s",)},
    standby=False,
    drain_seconds=5,
    answers=("Paris.",),
    seen={"vllm": "old"},
)
NEW = Container(
    service="vllm", id="new", state="running", config_hash="h-joined", image_id="i", started_at=2.0
)


def test_a_record_comes_back(tmp_path: Path) -> None:
    assert read_record(tmp_path) is None
    proved = RECORD.with_proof(NEW)
    write_record(tmp_path, proved)
    assert read_record(tmp_path) == proved
    forget_record(tmp_path)
    forget_record(tmp_path)
    assert read_record(tmp_path) is None


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"schema": 2}', '{"schema": 1, "hashes": {}}'])
def test_what_another_version_wrote_is_no_roll(tmp_path: Path, content: str) -> None:
    (tmp_path / "roll.json").write_text(content)
    assert read_record(tmp_path) is None


@pytest.mark.parametrize(
    ("container", "old"),
    [
        (NEW, False),
        (replace(NEW, config_hash="h"), False),
        (replace(NEW, id="old"), True),
        (replace(NEW, config_hash="other"), True),
        (replace(NEW, service="vllm-surge", config_hash="s"), False),
    ],
)
def test_which_container_is_from_before_the_roll(container: Container, old: bool) -> None:
    assert RECORD.is_old(container) is old


def test_a_proof_is_of_one_start() -> None:
    proved = RECORD.with_proof(NEW)
    assert proved.is_proved(NEW)
    assert not proved.is_proved(replace(NEW, started_at=3.0))
    assert not RECORD.is_proved(NEW)


SHOWN = {
    "schema": 1,
    "order": ["vllm-surge", "vllm"],
    "engines": {"vllm": {"ready": True, "in_flight": 3, "since": "…"}, "vllm-surge": {"ready": False}},
    "waiting": 2,
    "held_bytes": 10,
}


def test_the_account_of_the_gateway() -> None:
    route = parse_route(json.dumps(SHOWN))
    assert route == Route(
        order=("vllm-surge", "vllm"),
        engines={"vllm": RoutedEngine(ready=True, in_flight=3), "vllm-surge": RoutedEngine()},
        waiting=2,
    )
    assert route.serving == "vllm"
    assert route.engine("nobody") == RoutedEngine()


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", json.dumps({**SHOWN, "schema": 2}), '{"schema": 1, "order": 1}']
)
def test_words_that_are_no_account(text: str) -> None:
    assert parse_route(text) is None


def gpu(uuid: str, free_gib: float) -> GpuFacts:
    return GpuFacts(uuid=uuid, total_bytes=80 * GIB, free_bytes=int(free_gib * GIB), architecture="sm90")


BY_NAME = CUDA.replace("80}", "80, devices: [GPU-b]}")


@pytest.mark.parametrize(
    ("text", "available_gib", "gpus", "words"),
    [
        (CPU, 2, (), None),
        (CPU, 1, (), "a second engine needs 1,557 MiB and the host has 1,024 MiB free"),
        (CUDA, 0, (gpu("GPU-a", 20), gpu("GPU-b", 0)), None),
        (CUDA, 0, (gpu("GPU-a", 2), gpu("GPU-b", 20)), "and GPU GPU-a has 2,048 MiB free"),
        (BY_NAME, 0, (gpu("GPU-a", 2), gpu("GPU-b", 20)), None),
        (BY_NAME, 0, (gpu("GPU-a", 20), gpu("GPU-b", 1)), "and GPU GPU-b has 1,024 MiB free"),
    ],
)  # fmt: skip
def test_room_for_a_second_engine(
    text: str, available_gib: int, gpus: tuple[GpuFacts, ...], words: str | None
) -> None:
    problem = room_problem(plan_of(text), available_bytes=available_gib * GIB, gpus=gpus)
    assert problem is None if words is None else words in str(problem)


def changes(**actions: str) -> Changes:
    items = tuple(
        Change(service=name.replace("_", "-"), action=action, why="")  # type: ignore[arg-type]
        for name, action in actions.items()
    )
    return Changes(items=items, drops_weights=False)


@pytest.mark.parametrize(
    ("found", "alone"),
    [
        (changes(weight_cache="keep", vllm="recreate"), True),
        (changes(weight_cache="keep", vllm="recreate", gateway="recreate"), True),
        (changes(weight_cache="keep", vllm="keep"), False),
        (changes(weight_cache="keep", vllm="start"), False),
        (changes(weight_cache="start", vllm="recreate"), False),
        (changes(weight_cache="recreate", vllm="recreate"), False),
        (changes(weight_cache="keep", vllm="create"), False),
    ],
)
def test_when_up_rolls(found: Changes, alone: bool) -> None:
    assert changes_engine_alone(found) is alone


def answers(*texts: str) -> Iterator[str]:
    return iter(texts)


@pytest.mark.parametrize(
    ("asked", "again", "same", "known"),
    [
        (("Paris.",), (), True, ("Paris.",)),
        # Near-ties fall otherwise in other batches: both sides are asked again before one is called wrong.
        (("Paris!", "Paris."), ("Paris.",), True, ("Paris.",)),
        (("Paris!",), ("Paris!",), True, ("Paris.", "Paris!")),
        (("Berlin.", "Berlin.", "Berlin."), ("Paris.", "Paris."), False, ("Paris.",)),
    ],
)
def test_the_same_answer(
    asked: tuple[str, ...], again: tuple[str, ...], same: bool, known: tuple[str, ...]
) -> None:
    first, second = answers(*asked), answers(*again)
    told = same_answer(("Paris.",), ask=lambda: next(first), again=lambda: next(second))
    assert (told.same, told.known, told.expected) == (same, known, "Paris.")
    assert list(first) == []
    assert list(second) == []


def test_a_question_to_an_engine_and_its_answer() -> None:
    path, body = completion_request("Org/Name")
    assert path == "/v1/completions"
    asked = json.loads(body)
    assert (asked["model"], asked["temperature"], asked["prompt"]) == (
        "Org/Name", 0, "What is the capital of France?",
    )  # fmt: skip
    assert completion_text('{"choices": [{"text": " Paris.", "token_ids": [1]}]}') == " Paris."
    assert completion_text('{"choices": [{"text": "", "token_ids": [7, 8]}]}') == "tokens 7 8"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no answer came"),
        ("the engine does not answer: [Errno 111]", "does not answer"),
        ('{"error": {"message": "The model `m` does not exist."}}', "does not exist"),
        ('{"choices": []}', "choices"),
        ('{"choices": [{"text": " ", "token_ids": []}]}', "no token"),
    ],
)
def test_an_answer_that_is_none(text: str, words: str) -> None:
    with pytest.raises(AnswerError, match=words):
        completion_text(text)


def marks(*found: str) -> list[LogLine]:
    return [LogLine(text=f"warmstack: {mark}") for mark in found]


START = '{"event": "engine-start", "t": 1, "attempt": 1}'


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ((START, '{"event": "serve", "t": 2}', '{"event": "ready", "t": 3}'), None),
        ((START, '{"event": "miss", "t": 2, "reason": "mismatch", "sentence": "holds a"}', START),
         "missed the weight cache (mismatch): holds a"),
        ((START, '{"event": "engine-exit", "t": 2, "code": 1, "sentence": "vllm serve ended"}', START),
         "vllm serve ended"),
        ((START, '{"event": "gave-up", "t": 2, "sentence": "5 starts failed"}'), "5 starts failed"),
    ],
)  # fmt: skip
def test_why_a_start_failed(found: tuple[str, ...], words: str | None) -> None:
    assert start_failure(marks(*found)) == words
