"""A load from its clients to its judgement: the real gateway, an engine that dies and comes back."""

from __future__ import annotations

import argparse
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes.engine import MODEL, Behaviour, FakeEngine
from fakes.gateway import running_gateway
from support.waiting import wait_until
from warmops.load import add_arguments, measure, shape_of
from warmops.load_clients import Load
from warmops.load_events import require_event
from warmops.load_judge import Judged, judge_run
from warmops.load_plan import Band, EventSeen, LoadRun, LoadShape
from warmops.load_request import Asked, now
from warmops.project import Project
from warmops.second_engine import second_config
from warmplan.errors import UserError

SHAPE = LoadShape(clients=8, streaming=4, seconds=0.4, max_tokens=7)


def asked(base_url: str) -> Asked:
    return Asked(base_url=base_url, model=MODEL, api_key=None, max_tokens=7)


def die_and_come_back(engine: FakeEngine) -> EventSeen:
    wait_until(lambda: engine.mid_stream, seconds=10, what="a stream is under way")
    begin = now()
    engine.die()
    dead = now()
    # Time in which requests are sent to an engine that is not there.
    threading.Event().wait(0.3)
    engine.start()
    end = now()
    return EventSeen(
        begun_at=begin, ended_at=end, bands=(Band(name="down", begin=begin, end=end),), ending=(begin, dead)
    )


def through_the_gateway(folder: Path, hold: str) -> Judged:
    with (
        FakeEngine(behaviour=Behaviour(token_seconds=0.03)) as engine,
        running_gateway(folder, upstreams=engine.address, WARMSTACK_HOLD=hold) as gateway,
    ):
        run = measure(Load(asked(gateway.url), SHAPE), SHAPE, lambda: die_and_come_back(engine))
    return judge_run(replace(run, event="kill"))


def test_with_hold_no_request_fails(tmp_path: Path) -> None:
    judged = through_the_gateway(tmp_path, "30s")
    failed = [finding for finding in judged.findings if not finding.ok]
    assert failed == []
    assert judged.counts["failed"] == 0
    assert judged.counts["answered"] > 4
    assert judged.takeover_seconds is not None
    assert judged.takeover_seconds > 0.3


def test_without_hold_requests_fail(tmp_path: Path) -> None:
    judged = through_the_gateway(tmp_path, "0s")
    assert judged.counts["failed"] > 0
    assert "failed" in [finding.name for finding in judged.findings if not finding.ok]


def loaded(engine: FakeEngine, shape: LoadShape) -> LoadRun:
    return measure(Load(asked(f"http://{engine.address}"), shape), shape, None)


def test_each_client_asks_in_its_own_way() -> None:
    with FakeEngine() as engine:
        run = loaded(engine, replace(SHAPE, clients=4, streaming=2, seconds=0.2))
        streaming = {request.client: request.streaming for request in run.requests}
        assert streaming == {0: True, 1: True, 2: False, 3: False}
        assert len({request.prompt for request in run.requests}) > 4
        assert run.unsent == 0
        assert len(engine.chats()) == len(run.requests)


def test_a_fixed_rate_is_kept_and_lateness_counts() -> None:
    with FakeEngine() as engine:
        run = loaded(engine, replace(SHAPE, rate=50.0, seconds=0.4))
        assert 16 <= len(run.requests) <= 25
        # Eight clients can't keep a hundred a second when an answer takes a fifth of a second.
        engine.behave(token_seconds=0.03)
        late = loaded(engine, replace(SHAPE, rate=100.0, seconds=0.6))
    assert late.unsent > 0
    assert max(request.sent_at - request.intended_at for request in late.requests) > 0.2


def test_what_the_event_raises_is_raised() -> None:
    def broken() -> EventSeen:
        raise RuntimeError("a bug")

    with FakeEngine() as engine, pytest.raises(RuntimeError, match="a bug"):
        measure(Load(asked(f"http://{engine.address}"), SHAPE), replace(SHAPE, seconds=0.1), broken)


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(words)


def test_half_of_the_clients_stream() -> None:
    assert shape_of(parsed()) == LoadShape(clients=8, streaming=4, seconds=60, max_tokens=24)
    assert shape_of(parsed("--clients", "1")).streaming == 1
    assert shape_of(parsed("--clients", "3", "--streaming", "0")).streaming == 0


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--clients", "0"], "clients"),
        (["--seconds", "0"], "seconds"),
        (["--seconds", "nan"], "seconds"),
        (["--tokens", "0"], "tokens"),
        (["--repeat", "0"], "repeat"),
        (["--streaming", "9"], "streaming"),
        (["--streaming", "0", "--event", "kill"], "streaming"),
        (["--rate", "0"], "rate"),
    ],
)
def test_a_load_that_cannot_be_is_refused(words: list[str], problem: str) -> None:
    with pytest.raises(UserError, match=problem) as refused:
        shape_of(parsed(*words))
    assert refused.value.exit_code == 2


def test_an_unknown_event_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no event rol") as refused:
        require_event("rol", Project(name="p", state=tmp_path))
    assert refused.value.exit_code == 2


class _Inspected(Project):
    """A project whose engine has this environment."""

    def inspected(self) -> list[dict[str, Any]]:
        labels = {"com.docker.compose.service": "vllm"}
        return [{"Config": {"Labels": labels, "Env": ["HOME=/tmp", *self.name.split()]}}]


@pytest.mark.parametrize(
    ("environment", "after"),
    [
        ("", "never"),
        ("WARMSTACK_HANG_SECONDS=0", "never"),
        ("WARMSTACK_HANG_SECONDS=300", "only after 300 s"),
    ],
)
def test_a_hang_that_is_noticed_late_or_never_is_refused(environment: str, after: str) -> None:
    with pytest.raises(UserError, match=f"counts as hung {after}") as refused:
        require_event("hang", _Inspected(name=environment))
    assert refused.value.exit_code == 2
    require_event("hang", _Inspected(name="WARMSTACK_HANG_SECONDS=10"))


def test_a_second_engine_is_the_engine_of_a_roll_out_of_the_gateways_sight() -> None:
    config = {
        "services": {
            "vllm": {"image": "i", "command": ["a"]},
            "vllm-surge": {
                "image": "i",
                "command": ["b"],
                "profiles": ["surge"],
                "ipc": "service:weight-cache",
                "depends_on": {"weight-cache": {}},
                "networks": {"backend": None},
                "volumes": [
                    {"type": "volume", "source": "sockets", "target": "/run/warmstack"},
                    {"type": "volume", "source": "compile-surge", "target": "/cache"},
                ],
            },
        },
        "volumes": {"sockets": {"name": "p_sockets"}, "compile-surge": {"name": "p_compile-surge"}},
    }
    found = second_config(config, project="p", ipc="container:abc", there=lambda name: name == "p_sockets")
    service = found["services"]["vllm-second"]
    assert service["command"] == ["b"]
    assert service["ipc"] == "container:abc"
    assert service["networks"] == {"backend": {"aliases": ["vllm-second"]}}
    assert not {"depends_on", "profiles"} & set(service)
    assert found["volumes"] == {"sockets": {"external": True, "name": "p_sockets"}, "compile-surge": {}}
    del config["services"]["vllm-surge"]
    found = second_config(config, project="p", ipc="container:abc", there=lambda name: True)
    assert found["services"]["vllm-second"]["command"] == ["a"]
