"""What `up` would create, recreate or start, and why: a pure decision on facts.

In: what the Compose file wants (hash and image of each service) and what containers there are.
Out: `Changes`. It refuses to know how those facts are asked for and how the changes are made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

WEIGHT_CACHE = "weight-cache"
ENGINE = "vllm"
SURGE = "vllm-surge"
SURGE_PROFILE = "surge"
ENGINES = (ENGINE, SURGE)
# Longer than Docker was seen to take from a process's first line to its own note of the start, by far.
START_LAG_SECONDS = 5.0
Action = Literal["keep", "create", "recreate", "start", "remove", "roll"]


@dataclass(frozen=True, kw_only=True)
class DesiredService:
    """A service of the Compose file: Compose's own hash of its configuration, the id of its image.

    A service that joins a namespace has a second hash, `joined_hash`: Compose 5 labels its container with the
    hash of the configuration in which `service:weight-cache` has become `container:<id>`, older ones with the
    first.
    """

    name: str
    config_hash: str
    image_id: str
    joined_hash: str | None = None
    model: str | None = None


@dataclass(frozen=True, kw_only=True)
class Container:
    """A container of the project. `joined_ipc` is the id of the container whose IPC namespace it joined."""

    service: str
    id: str
    state: str
    config_hash: str
    image_id: str
    started_at: float = 0.0
    finished_at: float = 0.0
    exit_code: int = 0
    joined_ipc: str | None = None
    model: str | None = None
    identity: str | None = None
    health: str | None = None
    restarts: int = 0

    @property
    def running(self) -> bool:
        return self.state == "running"

    @property
    def log_begins_at(self) -> float:
        """Unix second before the first line of its last run and, while it runs, after the run before.

        Docker notes `started_at` after the process began, which may have written its first lines by then.
        """
        of_run_before = self.finished_at if self.finished_at <= self.started_at else 0.0
        return max(of_run_before, self.started_at - START_LAG_SECONDS, 0.0)


@dataclass(frozen=True, kw_only=True)
class Change:
    service: str
    action: Action
    why: str


@dataclass(frozen=True, kw_only=True)
class Changes:
    """One `Change` for each service, the weight cache first. `drops_weights`: held weights would be lost."""

    items: tuple[Change, ...]
    drops_weights: bool

    @property
    def nothing(self) -> bool:
        return all(item.action == "keep" for item in self.items)

    def of(self, service: str) -> Change | None:
        return next((item for item in self.items if item.service == service), None)

    def services(self, *actions: Action) -> tuple[str, ...]:
        return tuple(item.service for item in self.items if item.action in actions)

    def with_action(self, service: str, action: Action) -> Changes:
        """The same, but for what is done about one service."""
        items = (replace(item, action=action) if item.service == service else item for item in self.items)
        return replace(self, items=tuple(items))


def decide(desired: Sequence[DesiredService], running: Iterable[Container]) -> Changes:
    """Compare service by service, the weight cache first: engines follow its namespace."""
    containers = {container.service: container for container in running}
    order = sorted(desired, key=lambda service: service.name != WEIGHT_CACHE)
    items: dict[str, Change] = {}
    for service in order:
        change = _compare(service, containers.get(service.name))
        if service.name in ENGINES and change.action in ("keep", "start"):
            change = _follow_namespace(change, containers, items.get(WEIGHT_CACHE))
        items[service.name] = change
    for name in sorted(containers.keys() - items.keys()):
        why = (
            "the Compose file no longer has it"
            if name != SURGE
            else "no roll is running, no standby is wished"
        )
        items[name] = Change(service=name, action="remove", why=why)
    cache = containers.get(WEIGHT_CACHE)
    replaced = items.get(WEIGHT_CACHE, Change(service=WEIGHT_CACHE, action="keep", why=""))
    drops = cache is not None and cache.running and replaced.action in ("recreate", "remove")
    return Changes(items=tuple(items.values()), drops_weights=drops)


def _compare(service: DesiredService, container: Container | None) -> Change:
    name = service.name
    if container is None:
        return Change(service=name, action="create", why="it is not there yet")
    if service.model is not None and container.model is not None and service.model != container.model:
        return Change(service=name, action="recreate", why=f"model {container.model} → {service.model}")
    if container.image_id != service.image_id:
        why = f"its image changed ({_short(container.image_id)} → {_short(service.image_id)})"
        return Change(service=name, action="recreate", why=why)
    if container.config_hash not in (service.config_hash, service.joined_hash):
        return Change(service=name, action="recreate", why="its configuration changed")
    if not container.running:
        code = f" with code {container.exit_code}" if container.state == "exited" else ""
        return Change(service=name, action="start", why=f"it is {container.state}{code}")
    return Change(service=name, action="keep", why="unchanged")


def _follow_namespace(
    change: Change, containers: Mapping[str, Container], cache_change: Change | None
) -> Change:
    engine, cache = containers[change.service], containers.get(WEIGHT_CACHE)
    if cache_change is not None and cache_change.action in ("create", "recreate"):
        why = "it lives in the IPC namespace of the weight cache, which is new"
    elif cache is not None and engine.joined_ipc is not None and engine.joined_ipc != cache.id:
        why = "it joined the IPC namespace of a weight cache that is gone"
    elif cache is not None and engine.running and not cache.running:
        why = "the weight cache whose IPC namespace it joined has stopped"
    elif cache is not None and engine.running and cache.started_at > engine.started_at:
        why = "the weight cache was started after it and has another IPC namespace now"
    else:
        return change
    return Change(service=change.service, action="recreate", why=why)


def _short(image_id: str) -> str:
    return image_id.removeprefix("sha256:")[:12]
