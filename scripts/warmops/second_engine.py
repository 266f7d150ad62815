"""A second engine beside the one that serves: on the same weights, and unknown to the gateway.

In: a running project. Out: an engine that is ready in a Compose project of its own, so that neither the
gateway nor `up` takes it for one of theirs. It is there to measure what two engines on one machine cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from warmops import side_project
from warmops.changes import ENGINE, SURGE, WEIGHT_CACHE
from warmops.console import failure
from warmops.evidence import StartEvidence, classify_start
from warmops.project import Project, Remembered
from warmops.side_project import SideProject
from warmops.starts import START_SECONDS, EngineFailed

SECOND = "vllm-second"
_LOOK_SECONDS = 1.0
_DROPPED = ("depends_on", "profiles", "healthcheck", "labels", "networks", "ipc", "restart", "container_name")


@dataclass(frozen=True, kw_only=True)
class SecondEngine:
    """The container and its Compose project; `remove` takes both away."""

    settings: Remembered
    side: SideProject

    @classmethod
    def make(cls, project: Project, settings: Remembered) -> SecondEngine:
        """Create the container, not started."""
        config = second_config(
            project.compose.with_profiles("*").config(),
            project=project.name,
            ipc=_joined(project),
            there=lambda name: project.docker.inspect(name, "volume") is not None,
        )
        return cls(settings=settings, side=SideProject.make(project, side_project.SECOND, config))

    def start(self) -> StartEvidence:
        """Start it and wait until it is ready. Raises EngineFailed when it is not, or maps nothing."""
        begun = time.time()
        self.side.start(SECOND)
        while time.time() < begun + START_SECONDS:
            evidence = classify_start(self.side.log(SECOND, since=begun), ranks=self.settings.ranks)
            if evidence.mark("gave-up") is not None:
                raise EngineFailed(evidence.sentence or "the second engine gave up")
            if evidence.ready:
                if evidence.outcome != "hit":
                    raise EngineFailed(f"the second engine mapped no weights: {evidence.reason}")
                return evidence
            time.sleep(_LOOK_SECONDS)
        raise EngineFailed(f"the second engine was not ready within {START_SECONDS:.0f} s")

    def stop(self) -> None:
        self.side.stop(SECOND)

    def remove(self) -> None:
        self.side.remove()


def _joined(project: Project) -> str:
    """The IPC namespace in which the weights are. Raises UserError (exit code 1) when nothing holds any."""
    if project.host_cache is not None:
        return "host"
    cache = project.container(WEIGHT_CACHE)
    if cache is None:
        raise failure("there is no weight cache", f"make up PROJECT={project.name}", exit_code=1)
    return f"container:{cache.id}"


def second_config(
    config: Mapping[str, Any], *, project: str, ipc: str, there: Callable[[str], bool]
) -> dict[str, Any]:
    """The engine of a roll as Compose reads the project, or else the engine, under a name of its own.

    A volume that exists is the project's; one that does not (a compile cache that no roll has filled yet)
    belongs to the second engine and goes with it.
    """
    services = config["services"]
    engine = services.get(SURGE, services[ENGINE])
    service = {name: value for name, value in engine.items() if name not in _DROPPED}
    service |= {
        "ipc": ipc,
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
