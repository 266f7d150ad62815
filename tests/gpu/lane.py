"""One project of a session on the GPU host, and what its steps ask and write down.

In: a `Lane`. Out: the project's own commands run as a user runs them, memory as the driver counts it, a JSON
file for each step. Refuses to know: what a step means.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu import memory
from gpu.gpus import mib_by_gpu, read_gpus, read_processes
from gpu.host import ROOT
from warmops.changes import ENGINE, WEIGHT_CACHE, Container
from warmops.evidence import Mark, last_start, parse_mark
from warmops.processes import host_processes
from warmops.project import Project, Remembered
from warmops.wanted import plan_wanted, read_wanted, settings_of
from warmops.wishes import ENVIRONMENTS
from warmplan import Plan


@dataclass(frozen=True, kw_only=True)
class Lane:
    """A project with its GPUs (indices in the driver's order) and where its results go."""

    name: str
    project: str
    environment: str
    gpus: tuple[int, ...]
    port: int
    model: str
    settings: tuple[str, ...]
    results: Path
    override: Path
    models: Path = Path("/tmp/models")
    docker_project: Project = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "docker_project", Project(name=self.project))

    @property
    def folder(self) -> Path:
        return self.results / self.name

    @property
    def on_gpu(self) -> bool:
        return self.environment.startswith("gpu")

    def remembered(self) -> Remembered:
        return self.docker_project.remembered()

    def engine(self) -> Container | None:
        return self.docker_project.container(ENGINE)

    def cache(self) -> Container | None:
        return self.docker_project.container(WEIGHT_CACHE)

    def plan(self, model: str | None = None, **overrides: str) -> Plan:
        """The plan of the last `up`, or the same with another model or other settings."""
        from warmplan.spec import Override

        settings = self.remembered()
        more = {"model.name": model} if model else {}
        changed = tuple(
            Override(key=key, value=value, origin="session")
            for key, value in {**more, **{k.replace("__", "."): v for k, v in overrides.items()}}.items()
        )
        folder = ENVIRONMENTS / settings.environment
        return plan_wanted(read_wanted(folder, (*settings_of(settings), *changed)))


def warm(lane: Lane, *arguments: str, log: str, seconds: float) -> tuple[int, str, float]:
    """Run `warm` for the lane's project: exit code (124 after `seconds`), stdout, seconds that it took.

    What it said goes to `<log>.log`.
    """
    command = [sys.executable, "-m", "warmops", arguments[0], "--project", lane.project, *arguments[1:]]
    begun = time.monotonic()
    with (lane.folder / f"{log}.log").open("a", encoding="utf-8") as said:
        try:
            done = subprocess.run(
                command,
                cwd=ROOT,
                env={**os.environ, "NO_COLOR": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            told = late.stdout or b""
            return 124, told.decode() if isinstance(told, bytes) else told, time.monotonic() - begun
    return done.returncode, done.stdout, time.monotonic() - begun


def up_arguments(lane: Lane, model: str | None = None) -> list[str]:
    chat = ["--set", "open_webui.enabled=false"]
    told = [word for setting in lane.settings for word in ("--set", setting)]
    where = ["--env", lane.environment, "--port", str(lane.port), "--override", str(lane.override)]
    wanted = model or lane.model
    return ["--no-build", *where, *(["--model", wanted] if wanted else []), *chat, *told]


def engine_log(lane: Lane) -> list[str]:
    """The engine's log since its last start, without Docker's times."""
    engine = lane.engine()
    lines = lane.docker_project.log(engine) if engine is not None else []
    return [line.text for line in last_start(lines) or lines]


def nursery_marks(lane: Lane) -> list[Mark]:
    """What PID 1 said of its nursery, and by which way each engine came, since the container was made."""
    engine = lane.engine()
    lines = lane.docker_project.log(engine) if engine is not None else []
    marks = (mark for line in lines if (mark := parse_mark(line.text)) is not None)
    return [mark for mark in marks if mark.event in ("nursery", "nursery-ready", "serve")]


def forked(marks: Sequence[Mark]) -> bool:
    """Whether the last engine came out of a nursery."""
    served = [mark for mark in marks if mark.event == "serve"]
    return bool(served) and served[-1].fields.get("nursery") is True


def container_mib(lane: Lane, container: str) -> dict[str, int]:
    """MiB on each GPU of one container's processes."""
    return mib_by_gpu(read_processes(), host_processes(lane.docker_project.docker, container))


def snapshot(lane: Lane, extra: Mapping[str, str] | None = None) -> dict[str, Any]:
    """GPU memory now: of each GPU, and by service and GPU. `extra` names more containers."""
    containers = {c.service: c.id for c in lane.docker_project.containers() if c.running}
    containers.update(extra or {})
    return {
        "gpus": [
            {"uuid": gpu.uuid, "used_mib": gpu.used_mib, "total_mib": gpu.total_mib} for gpu in read_gpus()
        ],
        "services": {name: container_mib(lane, one) for name, one in containers.items() if name != "gateway"},
    }


def compare_with_plan(
    lane: Lane, seen: Mapping[str, Any], plan: Plan, surge: str | None = None
) -> list[dict[str, Any]]:
    """The plan's parts against a snapshot, for each GPU of the lane."""
    parts = {part.key: part.bytes for part in plan.budget.parts}
    services = seen["services"]
    found = []
    for rank, uuid in enumerate(used_uuids(lane)):
        rows = memory.compare(
            parts,
            weight_cache_mib=services.get(WEIGHT_CACHE, {}).get(uuid, 0),
            engine_mib=services.get(ENGINE, {}).get(uuid, 0),
            surge_mib=services.get(surge, {}).get(uuid, 0) if surge else None,
        )
        found += [{"rank": rank, **row.facts()} for row in rows]
    return found


def used_uuids(lane: Lane) -> list[str]:
    found = read_gpus()
    return [found[index].uuid for index in lane.gpus]


def write_json(path: Path, value: Any) -> None:
    """Whole or not at all: results are collected while steps run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    part.replace(path)
