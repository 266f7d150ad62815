"""`clean-compile`: which volumes, and that no engine may run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from warmops.changes import Container
from warmops.clean_compile import compile_volumes, refuse_while_running
from warmops.docker import Completed, Docker
from warmops.project import Project
from warmplan.errors import UserError


def container(service: str, state: str) -> Container:
    return Container(service=service, id=service, state=state, config_hash="", image_id="")


@pytest.mark.parametrize(
    ("states", "refused"),
    [
        ({"weight-cache": "running", "vllm": "exited"}, None),
        ({"weight-cache": "running"}, None),
        ({"weight-cache": "running", "vllm": "running"}, "vllm of p runs"),
        ({"vllm": "exited", "vllm-surge": "running"}, "vllm-surge of p runs"),
    ],
)
def test_no_engine_may_run(states: Mapping[str, str], refused: str | None) -> None:
    containers = [container(service, state) for service, state in states.items()]
    if refused is None:
        refuse_while_running(containers, "p")
        return
    with pytest.raises(UserError, match=refused) as caught:
        refuse_while_running(containers, "p")
    assert caught.value.exit_code == 1
    assert "make down PROJECT=p" in str(caught.value)


class Told(Docker):
    def capture(self, *arguments: str, **_: object) -> Completed:  # type: ignore[override]
        lines = "p_compile-1 compile-1\np_sockets sockets\np_surge compile-1-surge\nx \n"
        return Completed(command=arguments, returncode=0, stdout=lines, stderr="")


def test_volumes_are_told_by_their_key_and_not_by_their_name(tmp_path: Path) -> None:
    project = Project(name="p", state=tmp_path, docker=Told())
    assert compile_volumes(project) == ["p_compile-1", "p_surge"]
