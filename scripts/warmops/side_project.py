"""Containers in a Compose project of their own beside a stack's: neither its gateway nor `up` knows them.

In: a project, a name, a Compose file as data. Out: containers that are created, started, read and removed on
their own. Refuses to know what they are for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from warmops.docker import Compose
from warmops.evidence import LogLine
from warmops.project import Project
from warmops.starts import EngineFailed

BENCH = "bench"
SECOND = "second"


def project_names(project: Project) -> tuple[str, ...]:
    """The Compose projects that there may be beside this one."""
    return tuple(f"{project.name}-{name}" for name in (BENCH, SECOND))


@dataclass(frozen=True, kw_only=True)
class SideProject:
    """One such Compose project; `remove` takes it away with the volumes that are its own."""

    project: Project
    compose: Compose

    @classmethod
    def make(cls, project: Project, name: str, config: Mapping[str, Any]) -> SideProject:
        """Create the containers, not started; what a killed run left behind is removed first."""
        file = project.folder / f"{name}.yaml"
        file.write_text(json.dumps(config, indent=2), encoding="utf-8")
        compose = project.docker.compose(
            project=f"{project.name}-{name}", file=file, project_directory=project.folder
        )
        compose.run("down", "--remove-orphans", "--volumes", quiet=True)
        compose.run("up", "--no-start")
        return cls(project=project, compose=compose)

    def container(self, service: str) -> str:
        """Its id. Raises EngineFailed when there is none any more."""
        found = self.compose.container(service)
        if found is None:
            raise EngineFailed(f"the container of {service} is gone")
        return found

    def start(self, service: str) -> None:
        self.project.docker.run("start", self.container(service))

    def stop(self, service: str) -> None:
        self.project.docker.run("stop", self.container(service))

    def log(self, service: str, *, since: float) -> list[LogLine]:
        """What it wrote since a moment in unix seconds."""
        return self.project.log_since(self.container(service), since)

    def remove(self) -> None:
        self.compose.run("down", "--remove-orphans", "--volumes", "--timeout", "30")
