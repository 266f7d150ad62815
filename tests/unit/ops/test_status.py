"""Advice for each state that is not right, and what a restart says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from warmops.answers import Answer
from warmops.changes import Container
from warmops.evidence import Mark, StartEvidence
from warmops.restart import as_text, describe
from warmops.starts import Start
from warmops.status import advise, advise_second

CACHE = Container(
    service="weight-cache", id="wc", state="running", config_hash="", image_id="", started_at=1.0
)
ENGINE = Container(
    service="vllm", id="en", state="running", config_hash="", image_id="", started_at=2.0, joined_ipc="wc"
)
GATEWAY = Container(service="gateway", id="gw", state="running", config_hash="", image_id="")
ALL = [CACHE, ENGINE, GATEWAY]
KILLED = replace(ENGINE, state="exited", exit_code=137)
RESTARTED = replace(CACHE, started_at=9.0)
HELD: dict[str, Any] = {"state": "held"}
HIT = StartEvidence(outcome="hit", marks=(Mark(event="ready", t=1.0),))
GAVE_UP = StartEvidence(
    outcome="miss", reason="mismatch", marks=(Mark(event="gave-up", t=1.0),), sentence="holds a, needs b"
)


@pytest.mark.parametrize(
    ("containers", "supervisor", "evidence", "serving", "words", "command"),
    [
        (ALL, HELD, HIT, True, None, None),
        ([CACHE, KILLED, GATEWAY], HELD, HIT, False, "code 137", "make up"),
        ([ENGINE, GATEWAY], None, HIT, True, "there is no weight-cache", "make up"),
        (ALL, None, HIT, True, "does not answer", "make logs SERVICE=weight-cache"),
        (ALL, {"state": "failed", "reason": "ENOSPC"}, HIT, True, "gave up: ENOSPC", "make down-all"),
        (ALL, {"state": "waiting", "reason": "no room"}, HIT, True, "waits: no room", "make restart"),
        (ALL, {"state": "loading", "degraded": True}, HIT, True, "no weights are held", "make status"),
        ([replace(CACHE, id="new"), ENGINE, GATEWAY], HELD, HIT, True, "earlier weight cache", "make up"),
        ([RESTARTED, ENGINE, GATEWAY], HELD, HIT, True, "earlier weight cache", "make up"),
        (ALL, HELD, GAVE_UP, False, "gave up: holds a, needs b", "make restart"),
        (ALL, HELD, StartEvidence(outcome="miss", reason="released"), True, "missed", "make restart"),
        (ALL, HELD, StartEvidence(outcome="unknown"), False, "not serving yet: starting", "make status"),
    ],
)  # fmt: skip
def test_advice(
    containers: list[Container],
    supervisor: dict[str, Any] | None,
    evidence: StartEvidence,
    serving: bool,
    words: str | None,
    command: str | None,
) -> None:
    """Case 17 among others: a stale namespace is explained."""
    found = advise(containers, supervisor, evidence, serving=serving, project="p")
    if words is None or command is None:
        assert found == ()
        return
    assert words in found[0].problem
    assert found[0].command.startswith(command)
    assert "PROJECT=p" in found[0].command


@pytest.mark.parametrize(
    ("supervisor", "words", "command"),
    [
        (HELD, None, None),
        (None, "a process of this host, does not answer", "sudo systemctl start u.service"),
        ({"state": "failed", "reason": "ENOSPC"}, "gave up: ENOSPC", "sudo systemctl restart u.service"),
        ({"state": "waiting", "reason": "no room"}, "waits: no room", "make restart PROJECT=p"),
    ],
)
def test_advice_where_the_host_runs_the_weight_cache(
    supervisor: dict[str, Any] | None, words: str | None, command: str | None
) -> None:
    engine = replace(ENGINE, joined_ipc=None)
    found = advise([engine, GATEWAY], supervisor, HIT, serving=True, project="p", unit="u.service")
    assert [advice.command for advice in found] == ([] if command is None else [command])
    assert all(words is not None and words in advice.problem for advice in found)


def test_a_lost_gpu_is_seen() -> None:
    """Case 27."""
    found = advise(ALL, HELD, HIT, serving=True, project="p", lost=("weight-cache", "vllm"))
    assert [advice.command for advice in found] == [
        "make down-all PROJECT=p && make up PROJECT=p",
        "make restart PROJECT=p",
    ]
    assert all("has lost its GPU" in advice.problem for advice in found)


SURGE = replace(ENGINE, service="vllm-surge", id="surge0123456789")
MISSED = StartEvidence(outcome="miss", reason="mismatch", sentence="holds a, needs b")


@pytest.mark.parametrize(
    ("surge", "evidence", "standby", "at_work", "step", "words", "command"),
    [
        (None, HIT, False, None, None, None, None),
        (SURGE, HIT, True, None, None, None, None),
        (SURGE, HIT, False, None, None, "vllm-surge is left over from a roll", "make up PROJECT=p"),
        (None, HIT, True, None, None, "there is no vllm-surge to stand by", "make up PROJECT=p"),
        (SURGE, MISSED, True, None, None, "missed the weight cache (mismatch)", "docker restart surge01234"),
        # A roll that did not end; while one runs there is nothing to mend.
        (SURGE, HIT, False, None, "drain vllm", "it stands at `drain vllm`", "make roll PROJECT=p"),
        (None, HIT, False, None, "start vllm-surge", "stands at `start vllm-surge`", "make roll PROJECT=p"),
        (SURGE, HIT, False, "`warm roll` (process 7)", "drain vllm", None, None),
    ],
)  # fmt: skip
def test_advice_on_a_second_engine(
    surge: Container | None,
    evidence: StartEvidence,
    standby: bool,
    at_work: str | None,
    step: str | None,
    words: str | None,
    command: str | None,
) -> None:
    found = advise_second(surge, evidence, standby=standby, at_work=at_work, step=step, project="p")
    if words is None or command is None:
        assert found == []
        return
    (advice,) = found
    assert words in advice.problem
    assert advice.command.startswith(command)


ANSWER = Answer(
    text="Paris.",
    model="m",
    finish_reason="stop",
    first_token_seconds=14.0,
    total_seconds=14.5,
    sent_at=101.0,
)
START = Start(
    evidence=replace(HIT, tensors=303, mapped_bytes=2**28),
    moments={"asked": 100.0, "stopped": 101.0, "ready": 114.0, "first-token": 115.0},
    answer=ANSWER,
)


@pytest.mark.parametrize(
    ("start", "before", "survivors", "passed"),
    [
        (START, "Paris.", (), True),
        (START, None, (), True),
        (START, "Berlin.", (), False),
        (START, "Paris.", (412,), False),
        (replace(START, evidence=GAVE_UP), "Paris.", (), False),
        (replace(START, evidence=StartEvidence(outcome="unknown")), "Paris.", (), False),
        (replace(START, answer=None), "Paris.", (), False),
        (replace(START, error="the engine gave up"), "Paris.", (), False),
    ],
)
def test_a_restart_passes_only_as_a_hit(
    start: Start, before: str | None, survivors: tuple[int, ...], passed: bool
) -> None:
    assert describe(start, before, survivors=survivors)["passed"] is passed


def test_a_restart_for_people() -> None:
    text = as_text(describe(START, "Paris."))
    assert "hit" in text
    assert "303 tensors, 256 MiB" in text
    assert "after 15.00 s" in text
    assert "old engine stops         1.00 s" in text
    assert "unattributed            " in text
    assert "the same as before: 'Paris.'" in text
