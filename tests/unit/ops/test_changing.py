"""In which order containers go and come when a project is made like its file: commands as they are given."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from warmops.changes import Change, Changes, Container
from warmops.changing import carry_out
from warmops.docker import Completed, Docker
from warmops.evidence import Mark, StartEvidence
from warmops.project import Project, Remembered
from warmplan.errors import UserError

PAIR = {"weight-cache": "keep", "vllm": "recreate", "vllm-surge": "recreate"}
REMEMBERED = Remembered(
    environment="cpu",
    overrides={},
    model="m",
    served_model="m",
    identity="",
    platform="cpu",
    ranks=1,
    gateway_url="http://127.0.0.1:9",
    webui_url=None,
    needs_api_key=False,
    standby=True,
    drain_seconds=5,
    restart_drain_seconds=5,
)


@dataclass(frozen=True, kw_only=True)
class _Docker(Docker):
    """Remembers what was to be done, and answers for a gateway that sees these engines ready."""

    ready: set[str]
    done: list[str] = field(default_factory=list)

    def execute(self, container: str, *argv: str, **how: Any) -> Completed:
        if argv[1] != "show":
            self.done.append(" ".join(argv[1:]))
        engines = {name: {"ready": name in self.ready} for name in ("vllm", "vllm-surge")}
        state = {"schema": 1, "order": ["vllm", "vllm-surge"], "engines": engines}
        return Completed(command=argv, returncode=0, stdout=json.dumps(state), stderr="")

    def run(self, *arguments: str, **how: Any) -> Completed:
        self.done.append(" ".join(arguments[arguments.index("up") :]))
        self.ready.update({"vllm", "vllm-surge"} & set(arguments))
        return Completed(command=arguments, returncode=0, stdout="", stderr="")


class _Project(Project):
    """Every container is there; an engine whose name is in the project's own never becomes ready."""

    docker: _Docker

    def container(self, service: str) -> Container | None:
        return Container(service=service, id=service, state="running", config_hash="", image_id="")

    def supervisor_status(self) -> dict[str, Any] | None:
        return {"state": "loading" if self.name == "lost" else "held"}

    def remembered(self) -> Remembered:
        return REMEMBERED

    def remove(self, service: str) -> None:
        self.docker.done.append(f"remove {service}")
        self.docker.ready.discard(service)

    def evidence_of(self, engine: Container | None, *, ranks: int = 1) -> StartEvidence:
        assert engine is not None
        if engine.service in self.name.split():
            self.docker.ready.discard(engine.service)
            return StartEvidence(outcome="miss", sentence="no room", marks=(Mark(event="gave-up", t=0.0),))
        return StartEvidence(outcome="hit", marks=(Mark(event="engine-start", t=time.time()),))


def commands(actions: dict[str, str], *, ready: set[str], name: str = "p") -> list[str]:
    docker = _Docker(ready=ready)
    items = tuple(Change(service=service, action=action, why="") for service, action in actions.items())  # type: ignore[arg-type]
    carry_out(
        _Project(name=name, state=Path("/nowhere"), docker=docker), Changes(items=items, drops_weights=False)
    )
    return docker.done


TURN = ("remove {0}", "up --detach --no-deps {0}")


@pytest.mark.parametrize(
    ("ready", "first", "second"),
    [
        ({"vllm", "vllm-surge"}, "vllm-surge", "vllm"),
        ({"vllm-surge"}, "vllm", "vllm-surge"),
    ],
)
def test_of_a_pair_the_one_that_does_not_serve_goes_first(ready: set[str], first: str, second: str) -> None:
    done = [line for line in commands(PAIR, ready=ready) if not line.startswith(("set ", "pause ", "resume"))]
    assert done == [*(line.format(one) for one in (first, second) for line in TURN), "up --detach"]


@pytest.mark.parametrize(
    ("actions", "ready", "name"),
    [
        (PAIR, set(), "p"),  # nobody serves
        (PAIR, {"vllm", "vllm-surge"}, "lost"),  # a new engine would wait for weights
        ({**PAIR, "weight-cache": "recreate"}, {"vllm", "vllm-surge"}, "p"),
    ],
)
def test_a_pair_goes_together_where_turns_cannot_be_taken(
    actions: dict[str, str], ready: set[str], name: str
) -> None:
    gone = [line for line in commands(actions, ready=ready, name=name) if line.startswith(("remove", "up"))]
    cache = ["remove weight-cache"] if actions["weight-cache"] == "recreate" else []
    assert gone == ["remove vllm", "remove vllm-surge", *cache, "up --detach"]


def test_the_other_one_serves_on_when_a_new_one_does_not_start() -> None:
    docker = _Docker(ready={"vllm", "vllm-surge"})
    project = _Project(name="vllm-surge", state=Path("/nowhere"), docker=docker)
    items = tuple(Change(service=name, action=action, why="") for name, action in PAIR.items())  # type: ignore[arg-type]
    with pytest.raises(UserError, match="vllm-surge does not start: no room"):
        carry_out(project, Changes(items=items, drops_weights=False))
    assert "remove vllm" not in docker.done


def test_one_engine_is_drained_before_it_goes_and_held_requests_wait_until_it_is_gone() -> None:
    done = commands({"weight-cache": "keep", "vllm": "recreate"}, ready={"vllm"})
    assert done == ["pause 10", "pause 10", "pause 60", "remove vllm", "resume", "up --detach"]


def test_what_is_unchanged_is_left_alone() -> None:
    assert commands({"weight-cache": "keep", "vllm": "keep"}, ready={"vllm"}) == []
    assert commands({"vllm": "keep", "gateway": "recreate"}, ready={"vllm"}) == ["up --detach"]
