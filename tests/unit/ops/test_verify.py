"""`warm verify` from files and answers of Docker to differences; Docker is a fake at the process boundary."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support.wishes import read_yaml
from warmops.differences import find_differences
from warmops.docker import Completed, Docker
from warmops.project import ROOT, Project, Remembered
from warmops.verify import gather, planned_text

COMMITTED = (ROOT / "compose/environments/cpu/compose.yaml").read_text(encoding="utf-8")
IDENTITY = read_yaml(COMMITTED)["services"]["vllm"]["labels"]["warmstack.identity"]
STATUS = {"state": "held", "identity": IDENTITY, "bytes_held": 270079072}
HIT = """\
2026-11-29T17:00:02.0Z warmstack: {"event": "engine-start", "t": 1.0, "attempt": 1}
2026-11-29T17:00:03.0Z INFO Mapped 303 tensors from the weight cache daemon (zero_copy mode)
"""
SETTINGS = Remembered(
    environment="cpu",
    overrides={"project": "warmstack-cpu"},
    model="m",
    served_model="m",
    identity=IDENTITY,
    platform="cpu",
    ranks=1,
    gateway_url="http://127.0.0.1:8000",
    webui_url=None,
    needs_api_key=False,
)


def started(services: dict[str, Any]) -> dict[str, Any]:
    """Compose leaves out what has a profile, unless the profile is asked for."""
    return {name: service for name, service in services.items() if "profiles" not in service}


@dataclass(frozen=True, kw_only=True)
class Stack(Docker):
    """Docker on a host where the committed stack of `cpu` runs, but for the `changes` of a container."""

    state: Path = Path()
    compose_version: int = 5
    changes: Mapping[str, Any] = field(default_factory=dict)
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def capture(self, *arguments: str, **options: Any) -> Completed:
        self.asked.append(arguments)
        return Completed(command=arguments, returncode=0, stdout=self._answer(arguments), stderr="")

    def _answer(self, arguments: tuple[str, ...]) -> str:
        match arguments:
            case ("ps", *_):
                return "\n".join(self._services())
            case ("inspect", "--type", "container", *names):
                return json.dumps([self._container(name) for name in names])
            case ("inspect", "--type", "image", *tags):
                return json.dumps([{"Id": f"sha256:{tag}", "RepoTags": [tag]} for tag in tags])
            case ("exec", *_):
                return json.dumps(STATUS)
            case ("logs", *_):
                return HIT
            case ("compose", *words) if "--hash" in words:
                return "".join(f"{name} {digest}\n" for name, digest in self._hashes(words).items())
            case ("compose", *words):
                return json.dumps(self._config(Path(words[words.index("--file") + 1])))
        raise AssertionError(f"docker {arguments} was not expected")

    def _services(self) -> dict[str, Any]:
        return started(read_yaml(COMMITTED)["services"])

    def _hashes(self, words: list[str]) -> dict[str, str]:
        text = Path(words[words.index("--file") + 1]).read_text(encoding="utf-8")
        services = started(read_yaml(text)["services"])
        return {
            name: json.dumps(service, sort_keys=True).replace(" ", "") for name, service in services.items()
        }

    def _config(self, file: Path) -> dict[str, Any]:
        """The file as Compose shows it: full names of volumes, targets and paths of secrets."""
        config: dict[str, Any] = read_yaml(file.read_text(encoding="utf-8"))
        config["services"] = started(config["services"])
        for name, volume in config["volumes"].items():
            config["volumes"][name] = {"name": name if volume else f"warmstack-cpu_{name}"}
        for name, secret in config["secrets"].items():
            secret["file"] = str(self.state / "warmstack-cpu/secrets" / name)
        for service in config["services"].values():
            named = service.get("secrets", [])
            service["secrets"] = [{"source": name, "target": f"/run/secrets/{name}"} for name in named]
        return config

    def _container(self, name: str) -> dict[str, Any]:
        config = read_yaml(COMMITTED)
        service = config["services"][name]
        mounts = [
            {
                "Type": "volume",
                "Name": mount["source"] if mount["target"] == "/hub" else f"warmstack-cpu_{mount['source']}",
                "Source": "/somewhere",
                "Destination": mount["target"],
                "RW": not mount.get("read_only", False),
            }
            for mount in service.get("volumes", [])
        ]
        for secret in service.get("secrets", []):
            source = str(self.state / "warmstack-cpu/secrets" / secret)
            mounts.append(
                {"Type": "bind", "Source": source, "Destination": f"/run/secrets/{secret}", "RW": False}
            )
        joined = COMMITTED.replace("service:weight-cache", "container:weight-cache")
        as_labelled = read_yaml(joined if self.compose_version >= 5 else COMMITTED)["services"][name]
        labels = {
            **service.get("labels", {}),
            "com.docker.compose.service": name,
            "com.docker.compose.config-hash": json.dumps(as_labelled, sort_keys=True).replace(" ", ""),
        }
        ipc = {"weight-cache": "shareable", "vllm": "container:weight-cache"}.get(name, "private")
        found = {
            "Id": name,
            "Image": f"sha256:{service['image']}",
            "State": {
                "Status": "running",
                "StartedAt": "2026-11-29T17:00:01.0Z",
                "FinishedAt": "0001-01-01T00:00:00Z",
            },
            "Config": {"User": service["user"], "Labels": labels},
            "HostConfig": {"IpcMode": ipc, "PidMode": ""},
            "Mounts": mounts,
        }
        return {**found, **self.changes.get(name, {})}


def project_on(docker: Stack) -> Project:
    project = Project(name="warmstack-cpu", state=docker.state, docker=docker)
    project.folder.mkdir(parents=True, exist_ok=True)
    project.compose_file.write_text(COMMITTED, encoding="utf-8")
    return project


@pytest.mark.parametrize("compose_version", [5, 2])
def test_the_committed_stack_as_it_runs_has_no_difference(tmp_path: Path, compose_version: int) -> None:
    docker = Stack(state=tmp_path, compose_version=compose_version)
    facts, source = gather(project_on(docker), SETTINGS)
    assert find_differences(facts) == ()
    assert source == "the plan of cpu"
    # The second hash costs a start of Compose: only an older one needs it.
    assert sum(1 for words in docker.asked if words[0] == "compose") == (2 if compose_version == 5 else 3)


def test_what_differs_is_named(tmp_path: Path) -> None:
    changes = {"vllm": {"HostConfig": {"IpcMode": "host", "PidMode": ""}}, "gateway": {"Image": "sha256:old"}}
    facts, _ = gather(project_on(Stack(state=tmp_path, changes=changes)), SETTINGS)
    assert [(d.name, d.current, d.desired) for d in find_differences(facts)] == [
        ("vllm: IPC namespace", "host", "container:weight-cache"),
        ("gateway: image", "sha256:old", "sha256:warmstack/gateway:2.11.7"),
    ]


def test_settings_of_the_last_up_belong_to_the_plan(tmp_path: Path) -> None:
    settings = Remembered(**{**vars(SETTINGS), "overrides": {"gateway.port": "8123"}})
    facts, _ = gather(project_on(Stack(state=tmp_path)), settings)
    assert [difference.name for difference in find_differences(facts)] == ["gateway: configuration"]


@pytest.mark.parametrize(
    ("environment", "overrides", "source"),
    [
        ("cpu", {"model.name": "Org/Other"}, "the lock of cpu does not hold Org/Other"),
        ("gone", {}, "there is no gone among the environments here"),
    ],
)
def test_without_a_lock_the_file_of_the_last_up_counts(
    tmp_path: Path, environment: str, overrides: dict[str, str], source: str
) -> None:
    settings = Remembered(**{**vars(SETTINGS), "environment": environment, "overrides": overrides})
    project = project_on(Stack(state=tmp_path))
    planned = planned_text(project, settings)
    assert (planned.compose, planned.unit) == (COMMITTED, None)
    assert source in planned.source
