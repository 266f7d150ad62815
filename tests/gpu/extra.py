"""More engines on a project's weight cache: copies of its engine's service, each with a network of its own.

In: the project's Compose file as Compose reads it, with its override. Out: containers beside it, their
evidence and their answers. What a roll needs for a moment, and what makes twenty starts take the time of a
few.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from gpu.lane import Lane
from warmops.changes import ENGINE
from warmops.docker import Compose
from warmops.evidence import StartEvidence, classify_start
from warmops.processes import Process, processes
from warmops.project import container_from

_FAST_START = ("--load-format=", "--model-loader-extra-config=")
_KEPT = (
    "image",
    "user",
    "read_only",
    "cap_drop",
    "security_opt",
    "environment",
    "tmpfs",
    "volumes",
    "devices",
    "deploy",
    "command",
)
# Asks the engine inside its own network namespace, greedily, as `warm` asks.
_ASK = """
import json, secrets, urllib.request
body = {"model": MODEL, "prompt": "What is the capital of France?", "temperature": 0, "max_tokens": 24,
        "return_token_ids": True, "cache_salt": secrets.token_hex(16)}
request = urllib.request.Request("http://127.0.0.1:8000/v1/completions", json.dumps(body).encode(),
                                 {"Content-Type": "application/json"})
choice = json.load(urllib.request.urlopen(request, timeout=120))["choices"][0]
print(json.dumps([choice.get("token_ids"), choice["text"]]))
"""


@dataclass(frozen=True, kw_only=True)
class Extra:
    """How one more engine differs: words behind its command, words replaced by their beginning, variables."""

    name: str
    arguments: tuple[str, ...] = ()
    replaced: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[tuple[str, str], ...] = ()
    entrypoint: tuple[str, ...] | None = None
    maps: bool = True


def extra_services(config: Mapping[str, Any], cache: str, extras: Sequence[Extra]) -> dict[str, Any]:
    """A Compose file of these engines; each joins the IPC namespace of the container `cache`."""
    engine = config["services"][ENGINE]
    services = {}
    for extra in extras:
        service: dict[str, Any] = {name: engine[name] for name in _KEPT if name in engine}
        command = [_replaced(word, extra.replaced) for word in engine["command"]]
        if not extra.maps:
            command = [
                w for w in command if not w.startswith(("--load-format", "--model-loader-extra-config"))
            ]
        binds = [
            {"type": "bind", "source": source, "target": target, "read_only": True}
            for source, target in extra.mounts
        ]
        taken = {target for _, target in extra.mounts}
        service |= {
            "command": [*command, *extra.arguments],
            "environment": {**(engine.get("environment") or {}), **extra.environment},
            "volumes": [*(v for v in engine.get("volumes", []) if v["target"] not in taken), *binds],
            "network_mode": "none",
            # Its probes would use process ids up, and no drill waits for health.
            "healthcheck": {"disable": True},
            "stop_grace_period": "20s",
        }
        if extra.maps:
            service["ipc"] = f"container:{cache}"
        else:
            service["shm_size"] = config["services"]["weight-cache"].get("shm_size", "1gb")
        if extra.entrypoint is not None:
            service["entrypoint"] = list(extra.entrypoint)
        services[extra.name] = service
    volumes = {
        mount["source"]: {"external": True, "name": config["volumes"][mount["source"]]["name"]}
        for mount in engine.get("volumes", [])
        if mount["type"] == "volume"
    }
    return {"services": services, "volumes": volumes}


def _replaced(word: str, replaced: Mapping[str, str]) -> str:
    """The first beginning that fits decides the whole word."""
    return next((new for start, new in replaced.items() if word.startswith(start)), word)


@dataclass(frozen=True, kw_only=True)
class ExtraEngines:
    """Engines that were started beside a project's own."""

    lane: Lane
    compose: Compose
    names: tuple[str, ...]

    def container(self, name: str) -> str:
        found = self.compose.container(name)
        if found is None:
            raise RuntimeError(f"{name} has no container")
        return found

    def ids(self) -> dict[str, str]:
        return {name: self.container(name) for name in self.names}

    def evidence(self, name: str) -> StartEvidence:
        ranks = self.lane.remembered().ranks
        return classify_start(self.lane.docker_project.log(self._view(name)), ranks=ranks)

    def log(self, name: str) -> list[str]:
        return [line.text for line in self.lane.docker_project.log(self._view(name))]

    def _view(self, name: str) -> Any:
        found = self.lane.docker_project.docker.inspect(self.container(name))
        assert found is not None
        return container_from(found)

    def await_all(self, seconds: float) -> dict[str, str]:
        """Until each is ready, refused, or has ended: its name and which of these, else `late`."""
        deadline = time.monotonic() + seconds
        states: dict[str, str] = {}
        while len(states) < len(self.names) and time.monotonic() < deadline:
            for name in self.names:
                if name not in states and (state := self._state(name)) is not None:
                    states[name] = state
            time.sleep(0.5)
        return {name: states.get(name, "late") for name in self.names}

    def _state(self, name: str) -> str | None:
        evidence = self.evidence(name)
        if evidence.ready:
            return "ready"
        if any(mark.event in ("miss", "engine-exit", "gave-up") for mark in evidence.marks):
            return "refused" if evidence.mark("miss") else "ended"
        view = self._view(name)
        if not view.running:
            return "ended"
        if any("Application startup complete" in line for line in self.log(name)):
            return "ready"
        return None

    def ask(self, name: str) -> str:
        """Its greedy answer, or the sentence why there is none."""
        model = self.lane.remembered().served_model
        script = _ASK.replace("MODEL", json.dumps(model))
        told = self.lane.docker_project.docker.execute(
            self.container(name), "python3", "-c", script, check=False, timeout_seconds=150
        )
        return told.stdout.strip() if told.ok else f"no answer: {told.stderr.strip().splitlines()[-1:]}"

    def processes(self, name: str) -> tuple[Process, ...]:
        return processes(self.lane.docker_project.docker, self.container(name))

    def stop(self, name: str) -> None:
        self.compose.run("stop", "--timeout", "20", name, quiet=True)


def ask_project(lane: Lane) -> str:
    """The project's own engine, asked the same way."""
    engine = lane.engine()
    if engine is None:
        return "no engine"
    script = _ASK.replace("MODEL", json.dumps(lane.remembered().served_model))
    told = lane.docker_project.docker.execute(
        engine.id, "python3", "-c", script, check=False, timeout_seconds=150
    )
    return told.stdout.strip() if told.ok else f"no answer: {told.stderr.strip().splitlines()[-1:]}"


@contextmanager
def extra_engines(lane: Lane, *extras: Extra) -> Iterator[ExtraEngines]:
    """Start them all at once; they are removed when the block is left, and their logs kept."""
    project = lane.docker_project
    cache = lane.cache()
    if cache is None:
        raise RuntimeError("the weight cache is not there")
    config = extra_services(project.compose.config(), cache.id, extras)
    file = project.folder / "extra.yaml"
    file.write_text(json.dumps(config, indent=2), encoding="utf-8")
    compose = project.docker.compose(
        project=f"{project.name}-extra", file=file, project_directory=project.folder
    )
    compose.run("down", "--remove-orphans", "--timeout", "10", quiet=True)
    running = ExtraEngines(lane=lane, compose=compose, names=tuple(extra.name for extra in extras))
    try:
        compose.run("up", "--detach", quiet=True)
        yield running
    finally:
        for name in running.names:
            container = compose.container(name)
            if container is not None:
                text = project.docker.logs(container)
                (lane.folder / f"extra-{name}.log").write_text(text, encoding="utf-8")
        compose.run("down", "--remove-orphans", "--timeout", "20", quiet=True)
