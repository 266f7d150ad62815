"""A second engine beside the one that serves: on the same weights, and unknown to the gateway.

In: a running project. Out: an engine that is ready in a Compose project of its own, so that neither the
gateway nor `up` takes it for one of theirs. It is there to measure what two engines on one machine cost.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from warmops.changes import ENGINE, SURGE, WEIGHT_CACHE
from warmops.console import failure
from warmops.docker import Compose
from warmops.evidence import LogLine, StartEvidence, classify_start
from warmops.project import Project, Remembered, log_line
from warmops.starts import START_SECONDS, EngineFailed

SECOND = "vllm-second"
_LOOK_SECONDS = 1.0
_DROPPED = ("depends_on", "profiles", "healthcheck", "labels", "networks", "ipc", "restart", "container_name")


@dataclass(frozen=True, kw_only=True)
class SecondEngine:
    """The container and its Compose project; `remove` takes both away."""

    project: Project
    settings: Remembered
    compose: Compose

    @classmethod
    def make(cls, project: Project, settings: Remembered) -> SecondEngine:
        """Create the container, not started."""
        cache = project.container(WEIGHT_CACHE)
        if cache is None:
            raise failure("there is no weight cache", f"make up PROJECT={project.name}", exit_code=1)
        wanted = project.compose.capture("--profile", "*", "config", "--format", "json")
        config = second_config(
            json.loads(wanted.stdout),
            project=project.name,
            weight_cache=cache.id,
            there=lambda name: project.docker.inspect(name, "volume") is not None,
        )
        file = project.folder / "second.yaml"
        file.write_text(json.dumps(config, indent=2), encoding="utf-8")
        compose = project.docker.compose(
            project=f"{project.name}-second", file=file, project_directory=project.folder
        )
        # What a killed run left behind.
        compose.run("down", "--remove-orphans", "--volumes", quiet=True)
        compose.run("up", "--no-start")
        return cls(project=project, settings=settings, compose=compose)

    def start(self) -> StartEvidence:
        """Start it and wait until it is ready. Raises EngineFailed when it is not, or maps nothing."""
        begun = time.time()
        container = self._container()
        self.project.docker.run("start", container)
        while time.time() < begun + START_SECONDS:
            evidence = classify_start(self._log(container, begun), ranks=self.settings.ranks)
            if evidence.mark("gave-up") is not None:
                raise EngineFailed(evidence.sentence or "the second engine gave up")
            if evidence.ready:
                if evidence.outcome != "hit":
                    raise EngineFailed(f"the second engine mapped no weights: {evidence.reason}")
                return evidence
            time.sleep(_LOOK_SECONDS)
        raise EngineFailed(f"the second engine was not ready within {START_SECONDS:.0f} s")

    def stop(self) -> None:
        self.project.docker.run("stop", self._container())

    def remove(self) -> None:
        self.compose.run("down", "--remove-orphans", "--volumes", "--timeout", "30")

    def _container(self) -> str:
        found = self.compose.container(SECOND)
        if found is None:
            raise EngineFailed("the second engine's container is gone")
        return found

    def _log(self, container: str, since: float) -> list[LogLine]:
        told = self.project.docker.capture(
            "logs", "--timestamps", "--since", f"{since:.6f}", container, merged=True, check=False
        )
        return [log_line(line) for line in told.stdout.splitlines()]


def second_config(
    config: Mapping[str, Any], *, project: str, weight_cache: str, there: Callable[[str], bool]
) -> dict[str, Any]:
    """The engine of a roll as Compose reads the project, or else the engine, under a name of its own.

    A volume that exists is the project's; one that does not (a compile cache that no roll has filled yet)
    belongs to the second engine and goes with it.
    """
    services = config["services"]
    engine = services.get(SURGE, services[ENGINE])
    service = {name: value for name, value in engine.items() if name not in _DROPPED}
    service |= {
        "ipc": f"container:{weight_cache}",
        "networks": {"backend": {"aliases": [SECOND]}},
        "restart": "no",
    }
    volumes: dict[str, Any] = {}
    for mount in service.get("volumes", []):
        if mount["type"] == "volume":
            name = config["volumes"][mount["source"]]["name"]
            volumes[mount["source"]] = {"external": True, "name": name} if there(name) else {}
    networks = {"backend": {"external": True, "name": f"{project}_backend"}}
    return {"services": {SECOND: service}, "networks": networks, "volumes": volumes}
