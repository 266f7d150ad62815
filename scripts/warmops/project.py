"""One Compose project on this host: its state folder, its containers, its logs.

In: a project name. Out: facts about what there is, as plain data. It changes its own state folder, and a
container only when told which; it refuses to know what the facts are good for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from warmops.changes import ENGINE, WEIGHT_CACHE, Container
from warmops.console import failure
from warmops.docker import Compose, Docker
from warmops.evidence import LogLine, StartEvidence, classify_start
from warmops.host_cache import HostCache
from warmplan.unit import UNIT_FILE

ROOT = Path(__file__).resolve().parents[2]
STATE = ROOT / ".warmstack"
SETTINGS_SCHEMA = 1
# What `up` was told to lay over the generated file, and what follows from that for the second engine.
OVERRIDES = ("override.yaml", "override.surge.yaml")


@dataclass(frozen=True, kw_only=True)
class Remembered:
    """What the last `up` of a project brought up, so that later commands need not be told again."""

    environment: str
    overrides: Mapping[str, str]
    model: str
    served_model: str
    identity: str
    platform: str
    ranks: int
    gateway_url: str
    webui_url: str | None
    needs_api_key: bool
    host_cache_port: int | None = None  # set where the weight cache is a process of the host
    standby: bool = False
    drain_seconds: int = 0  # for running requests, while new ones go to another engine
    restart_drain_seconds: int = 0  # the same while the gateway holds new ones
    schema: int = SETTINGS_SCHEMA


@dataclass(frozen=True, kw_only=True)
class Project:
    """A project by name; `folder` holds its Compose file, settings, secrets and reports."""

    name: str
    state: Path = STATE
    docker: Docker = field(default_factory=Docker)

    @property
    def folder(self) -> Path:
        return self.state / self.name

    @property
    def compose_file(self) -> Path:
        return self.folder / "compose.yaml"

    @property
    def unit_file(self) -> Path:
        """The systemd unit of the last `up`; there only where the host runs the weight cache."""
        return self.folder / UNIT_FILE

    @property
    def secrets(self) -> Path:
        return self.folder / "secrets"

    @property
    def reports(self) -> Path:
        return self.folder / "reports"

    @property
    def compose(self) -> Compose:
        """The project as it is in force."""
        return self.compose_with(self.compose_file)

    def compose_with(self, file: Path, *, overrides: Path | None = None) -> Compose:
        """The project under another Compose file: what would be, before it is.

        `overrides` is the folder whose overrides count; without one those in force do.
        """
        folder = overrides or self.folder
        there = tuple(folder / name for name in OVERRIDES if (folder / name).exists())
        return self.docker.compose(
            project=self.name, file=file, project_directory=self.folder, overrides=there
        )

    def remembered(self) -> Remembered:
        """Settings of the last `up`. Raises UserError (exit code 2) when there was none for this project."""
        found = read_remembered(self.folder)
        if found is None:
            hint = f"bring it up first: make up PROJECT={self.name}"
            raise failure(f"project {self.name} has not been brought up here", hint, exit_code=2)
        return found

    @property
    def host_cache(self) -> HostCache | None:
        """The weight cache where the last `up` had it on the host; None where it is a container."""
        settings = read_remembered(self.folder)
        port = settings.host_cache_port if settings is not None else None
        return None if port is None else HostCache(project=self.name, port=port)

    def api_key(self) -> str | None:
        path = self.secrets / "api_key"
        return path.read_text(encoding="utf-8").strip() if path.exists() else None

    def containers(self) -> tuple[Container, ...]:
        """Every container of the project in any state, without the one-off ones of `compose run`."""
        return tuple(container_from(item) for item in self.inspected())

    def inspected(self) -> list[dict[str, Any]]:
        """Those containers as `docker inspect` tells them."""
        label = f"label=com.docker.compose.project={self.name}"
        ids = self.docker.containers(label, "label=com.docker.compose.oneoff=False")
        if not ids:
            return []
        # A container may go between the two commands: what is left is the answer.
        told = self.docker.capture("inspect", "--type", "container", *ids, check=False)
        found: list[dict[str, Any]] = json.loads(told.stdout or "[]")
        return found

    def container(self, service: str) -> Container | None:
        return next((found for found in self.containers() if found.service == service), None)

    def remove(self, service: str) -> None:
        """Stop a service's container within its grace period and remove it, whatever the file says."""
        container = self.container(service)
        if container is None:
            return
        self.docker.run("stop", container.id)
        self.docker.run("rm", container.id)

    def log(self, container: Container) -> list[LogLine]:
        """What the container wrote since it was last started."""
        return self.log_since(container.id, container.log_begins_at)

    def log_since(self, container: str, moment: float) -> list[LogLine]:
        """What a container wrote since a moment in unix seconds; nothing when there is no such container."""
        since = ("--timestamps", "--since", f"{moment:.6f}")
        told = self.docker.capture("logs", *since, container, merged=True, check=False, timeout_seconds=60)
        return [log_line(line) for line in told.stdout.splitlines()]

    def save_log(self, service: str) -> Path | None:
        """Keep a container's log as a file in the state folder; None when there is no such container."""
        container = self.container(service)
        if container is None:
            return None
        path = self.folder / f"{service}.log"
        path.write_text("".join(f"{line.text}\n" for line in self.log(container)), encoding="utf-8")
        return path

    def engine_evidence(self, *, ranks: int = 1) -> StartEvidence:
        """Judgement of the engine's last start; `unknown` when there is no engine."""
        return self.evidence_of(self.container(ENGINE), ranks=ranks)

    def evidence_of(self, engine: Container | None, *, ranks: int = 1) -> StartEvidence:
        return classify_start(self.log(engine) if engine is not None else [], ranks=ranks)

    def supervisor_status(self) -> dict[str, Any] | None:
        """The weight cache's /status, asked where it runs; None when it does not answer."""
        return self.status_of(None if self.host_cache is not None else self.container(WEIGHT_CACHE))

    def status_of(self, cache: Container | None) -> dict[str, Any] | None:
        """As `supervisor_status`; `cache` is the container, None where there is none."""
        host = self.host_cache
        if host is not None:
            return host.status()
        if cache is None or not cache.running:
            return None
        told = self.docker.execute(cache.id, "warmstack-probe", "status", check=False, timeout_seconds=15)
        try:
            value = json.loads(told.stdout)
        except ValueError:
            return None
        return value if isinstance(value, dict) else None


def read_remembered(folder: Path) -> Remembered | None:
    """Settings in a project's folder; None when there are none or another version wrote them."""
    try:
        value = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
        return Remembered(**value) if value.get("schema") == SETTINGS_SCHEMA else None
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def write_remembered(folder: Path, settings: Remembered) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f"settings.json.{os.getpid()}.part"
    part.write_text(json.dumps(asdict(settings), indent=2) + "\n", encoding="utf-8")
    part.replace(folder / "settings.json")


def last_project(environment: str | None, *, state: Path = STATE) -> str | None:
    """Name of the project that was brought up last, in this environment or in any."""
    found = [
        (path.stat().st_mtime, path.parent.name)
        for path in state.glob("*/settings.json")
        if (settings := read_remembered(path.parent)) is not None
        and environment in (None, settings.environment)
    ]
    return max(found)[1] if found else None


def container_from(inspected: Mapping[str, Any]) -> Container:
    """A container as `docker inspect` tells it."""
    labels = inspected["Config"].get("Labels") or {}
    state = inspected["State"]
    ipc = str(inspected["HostConfig"].get("IpcMode") or "")
    return Container(
        service=labels.get("com.docker.compose.service", ""),
        id=inspected["Id"],
        state=state["Status"],
        config_hash=labels.get("com.docker.compose.config-hash", ""),
        image_id=inspected["Image"],
        started_at=unix_seconds(state["StartedAt"]),
        finished_at=unix_seconds(state["FinishedAt"]),
        exit_code=int(state.get("ExitCode", 0)),
        joined_ipc=ipc.removeprefix("container:") if ipc.startswith("container:") else None,
        model=labels.get("warmstack.model"),
        identity=labels.get("warmstack.identity"),
        health=(state.get("Health") or {}).get("Status"),
        restarts=int(inspected.get("RestartCount", 0)),
    )


def log_line(text: str) -> LogLine:
    """A line of `docker logs --timestamps`: a time, a space, what was written."""
    stamp, _, rest = text.partition(" ")
    try:
        return LogLine(text=rest, t=unix_seconds(stamp))
    except ValueError:
        return LogLine(text=text)


def unix_seconds(stamp: str) -> float:
    """Docker's RFC 3339 times with nanoseconds; its zero time (never started) is 0."""
    if stamp.startswith("0001-"):
        return 0.0
    return datetime.fromisoformat(stamp).timestamp()
