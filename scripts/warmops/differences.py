"""What runs that is not as planned: a pure comparison of facts.

In: what each service should be, what Docker shows of its container, what the supervisor and the engines' logs
say. Out: `Difference`s, as name, current, desired. It refuses to know how the facts are asked for, and what
would mend a difference: `up` says what it would recreate, `status` what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from warmops.changes import WEIGHT_CACHE

NOT_THERE: Final = "not there"
# Rounding of a checkpoint's tables aside, a rank holds all of its weights or something is wrong.
_LEAST_HELD: Final = 0.99


@dataclass(frozen=True, kw_only=True, order=True)
class MountFact:
    """A volume (`kind` volume, `source` its name) or a file or folder of the host (`kind` bind)."""

    target: str
    kind: str
    source: str
    read_only: bool

    def __str__(self) -> str:
        return f"{self.kind} {self.source} ({'read-only' if self.read_only else 'read-write'})"


@dataclass(frozen=True, kw_only=True)
class PlannedService:
    """A service of the plan. `hashes` are Compose's own, any of which is right (see `DesiredService`).

    `ipc` is None where Docker's default serves, `image_id` None when the image is not on this host.
    """

    name: str
    hashes: tuple[str, ...]
    image: str
    image_id: str | None
    user: str
    ipc: str | None
    mounts: frozenset[MountFact]
    identity: str | None


@dataclass(frozen=True, kw_only=True)
class RunningService:
    """A container of the project as Docker shows it; `started_at` in unix seconds."""

    name: str
    id: str
    state: str
    config_hash: str
    image_id: str
    user: str
    ipc: str
    pid: str
    mounts: frozenset[MountFact]
    identity: str | None
    started_at: float


@dataclass(frozen=True, kw_only=True)
class LastStart:
    """The judgement of an engine's last start."""

    service: str
    outcome: str
    reason: str | None


@dataclass(frozen=True, kw_only=True)
class CacheProcess:
    """A weight cache on the host: the id of its user, the words that it was started with."""

    user: int
    command: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class StackFacts:
    """Both sides. `supervisor` is the weight cache's /status, None when it does not answer.

    `weight_bytes` is what all ranks should hold together (None: the plan does not know), `starts` has one
    for each engine that the plan wants. `processes` are the weight cache on the host, planned and running;
    None where a container is the weight cache.
    """

    planned: tuple[PlannedService, ...]
    running: tuple[RunningService, ...]
    supervisor: Mapping[str, Any] | None
    weight_bytes: int | None
    starts: tuple[LastStart, ...]
    processes: tuple[CacheProcess, CacheProcess] | None = None


@dataclass(frozen=True, kw_only=True)
class Difference:
    name: str
    current: str
    desired: str


def find_differences(facts: StackFacts) -> tuple[Difference, ...]:
    """Everything that differs: services in the order of the plan, then what is held, then the last starts."""
    there = {service.name: service for service in facts.running}
    found: list[Difference] = []
    for planned in facts.planned:
        found += _service(planned, there)
    names = {service.name for service in facts.planned}
    found += [
        Difference(name=name, current=there[name].state, desired=NOT_THERE)
        for name in sorted(there.keys() - names)
    ]
    found += _held(facts)
    found += _process(*facts.processes) if facts.processes is not None else ()
    for start in facts.starts:
        if start.outcome != "hit":
            current = f"{start.outcome}: {start.reason}" if start.reason else start.outcome
            found.append(Difference(name=f"{start.service}: last start", current=current, desired="hit"))
    return tuple(found)


def _service(planned: PlannedService, there: Mapping[str, RunningService]) -> Iterator[Difference]:
    running = there.get(planned.name)
    if running is None:
        yield Difference(name=planned.name, current=NOT_THERE, desired="running")
        return
    yield from _pairs(
        planned.name,
        ("state", running.state, "running"),
        ("configuration", _one_of(running.config_hash, planned.hashes), planned.hashes[0]),
        ("image", running.image_id, planned.image_id or f"{planned.image}, which is not on this host"),
        ("user", running.user or "root", planned.user or "root"),
        ("identity", running.identity or "none", planned.identity or "none"),
        ("PID namespace", running.pid or "private", "private"),
    )
    if planned.ipc is not None:
        yield from _ipc(planned.name, planned.ipc, running, there.get(WEIGHT_CACHE))
    yield from _mounts(planned, running)


def _one_of(current: str, right: tuple[str, ...]) -> str:
    """The first right value where any of them is there, so that it compares equal."""
    return right[0] if current in right else current


def _ipc(
    name: str, wanted: str, running: RunningService, cache: RunningService | None
) -> Iterator[Difference]:
    if wanted != f"service:{WEIGHT_CACHE}":
        yield from _pairs(name, ("IPC namespace", running.ipc, wanted))
        return
    desired = f"container:{cache.id}" if cache is not None else f"of the {WEIGHT_CACHE}, which is {NOT_THERE}"
    yield from _pairs(name, ("IPC namespace", running.ipc, desired))
    # A restart of the same container has another namespace; its id tells nothing of that.
    if cache is not None and running.ipc == desired and cache.started_at > running.started_at:
        yield Difference(
            name=f"{name}: IPC namespace",
            current=f"of an earlier start of the {WEIGHT_CACHE}",
            desired="of its present start",
        )


def _mounts(planned: PlannedService, running: RunningService) -> Iterator[Difference]:
    wanted = {mount.target: mount for mount in planned.mounts}
    current = {mount.target: mount for mount in running.mounts}
    for target in sorted(wanted.keys() | current.keys()):
        if wanted.get(target) != current.get(target):
            yield Difference(
                name=f"{planned.name}: mount {target}",
                current=str(current.get(target, NOT_THERE)),
                desired=str(wanted.get(target, NOT_THERE)),
            )


def _process(planned: CacheProcess, running: CacheProcess) -> Iterator[Difference]:
    yield from _pairs(WEIGHT_CACHE, ("user", str(running.user), str(planned.user)))
    if running.command != planned.command:
        sides = (running.command, planned.command), (planned.command, running.command)
        current, desired = (" ".join(w for w in words if w not in other) for words, other in sides)
        yield Difference(name=f"{WEIGHT_CACHE}: command", current=current, desired=desired)


def _held(facts: StackFacts) -> Iterator[Difference]:
    status = facts.supervisor
    if status is None:
        yield Difference(name=f"{WEIGHT_CACHE}: status", current="no answer", desired="held")
        return
    # Engines carry it as well: on the host there is no weight-cache service.
    wanted = next((service.identity for service in facts.planned if service.identity), None)
    yield from _pairs(
        f"{WEIGHT_CACHE}: status",
        ("state", str(status.get("state")), "held"),
        ("identity", str(status.get("identity")), wanted or "none"),
    )
    held = int(status.get("bytes_held") or 0)
    if facts.weight_bytes is not None and held < facts.weight_bytes * _LEAST_HELD:
        yield Difference(
            name=f"{WEIGHT_CACHE}: bytes held", current=str(held), desired=f"{facts.weight_bytes} or more"
        )


def _pairs(name: str, *compared: tuple[str, str, str]) -> Iterator[Difference]:
    for what, current, desired in compared:
        if current != desired:
            yield Difference(name=f"{name}: {what}", current=current, desired=desired)


def difference_rows(found: Iterable[Difference]) -> list[tuple[str, str, str]]:
    """Rows for a table, long hashes cut where both sides still differ."""
    return [(d.name, _cut(d.current), _cut(d.desired)) for d in found]


def _cut(text: str) -> str:
    bare = text.removeprefix("sha256:").removeprefix("container:")
    if len(bare) == 64 and set(bare) <= set("0123456789abcdef"):
        return text.removesuffix(bare[16:])
    return text
