"""What is refused before anything is created, with key, words and exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from warmops import preflight
from warmops.docker import Docker
from warmops.model import unreadable_files
from warmops.project import ROOT, Project
from warmplan import UserError, build_spec, read_environment
from warmplan.spec import Override


class Idle(Project):
    """A project without containers, on a host of which docker is not asked."""

    def own_ports(self) -> frozenset[int]:
        return frozenset()


def check(environment: str, **overrides: str) -> None:
    wished = [
        Override(key=key.replace("__", "."), value=value, origin="test") for key, value in overrides.items()
    ]
    folder = ROOT / "compose" / "environments" / environment
    spec = build_spec(environment=read_environment(folder), overrides=wished)
    preflight.check_wish(spec, Idle(name="idle", docker=Docker(binary="no-docker")))


def refusal(environment: str, **overrides: str) -> UserError:
    with pytest.raises(UserError) as caught:
        check(environment, **overrides)
    return caught.value


def test_cuda_without_an_nvidia_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "has_nvidia_runtime", lambda docker: False)
    error = refusal("gpu")
    assert error.exit_code == 3
    assert "no usable NVIDIA runtime" in str(error)


def test_every_port_in_use_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "port_problem", lambda host, port: "is in use")
    error = refusal("cpu")
    assert [problem.key for problem in error.problems] == ["gateway.port", "open_webui.port"]
    assert error.exit_code == 1


def test_a_folder_that_is_not_there() -> None:
    error = refusal("cpu", model__name="/no/such/folder")
    assert (error.exit_code, error.problems[0].key) == (2, "model.name")


def test_what_the_containers_cannot_read(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_text("")
    tmp_path.chmod(0o755)
    assert unreadable_files(str(tmp_path)) == []
    (tmp_path / "model.safetensors").chmod(0o600)
    assert unreadable_files(str(tmp_path)) == [tmp_path / "model.safetensors"]
    tmp_path.chmod(0o700)
    assert unreadable_files(str(tmp_path))[0] == tmp_path
