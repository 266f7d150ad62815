"""`verify`: the plan of a project against what runs, as name, current, desired. Exit 1 on any difference.

In: a running project and the environment it was brought up from, planned again with the settings of the last
`up`. Out: a table or JSON. Where the model's content does not stand in lock.yaml the Compose file of the last
`up` is what counts, and the report says so. It changes nothing; `up` does.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from warmops.changes import ENGINES, WEIGHT_CACHE, Container
from warmops.differences import (
    CacheProcess,
    LastStart,
    MountFact,
    PlannedService,
    RunningService,
    StackFacts,
    difference_rows,
    find_differences,
)
from warmops.project import Project, Remembered, container_from
from warmops.running import joined_hashes
from warmops.table import print_table
from warmops.target import add_target, find_target
from warmops.wanted import plan_wanted, read_wanted, settings_of
from warmops.wishes import ENVIRONMENTS
from warmplan import UserError, render_compose, render_unit
from warmplan.unit_file import read_unit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)


def run(arguments: argparse.Namespace) -> int:
    project, settings = find_target(arguments)
    facts, source = gather(project, settings)
    found = find_differences(facts)
    if arguments.json:
        report = {
            "project": project.name,
            "compared_with": source,
            "differences": [asdict(difference) for difference in found],
        }
        print(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        if found:
            print_table(("what", "current", "desired"), difference_rows(found))
        said = f"{len(found)} differences from" if found else "all as in"
        print(f"{project.name}: {said} {source}")
    return 1 if found else 0


@dataclass(frozen=True, kw_only=True)
class Planned:
    """The files that should be in force, and what they were made from; `unit` is None for a container."""

    compose: str
    unit: str | None
    source: str


def planned_text(project: Project, settings: Remembered) -> Planned:
    """What should be in force: of the environment as it is now, else of the last `up`."""
    folder = ENVIRONMENTS / settings.environment
    if not folder.is_dir():
        return _last_up(project, f"there is no {folder.name} among the environments here")
    wanted = read_wanted(folder, settings_of(settings))
    if wanted.model is None or wanted.model.digest is None:
        return _last_up(project, f"the lock of {folder.name} does not hold {wanted.spec.model.name}")
    plan = plan_wanted(wanted)
    source = f"the plan of {folder.name}"
    return Planned(compose=render_compose(plan), unit=render_unit(plan), source=source)


def _last_up(project: Project, why: str) -> Planned:
    unit = project.unit_file
    return Planned(
        compose=project.compose_file.read_text(encoding="utf-8"),
        unit=unit.read_text(encoding="utf-8") if unit.exists() else None,
        source=f"the file of the last `up` ({why})",
    )


def gather(project: Project, settings: Remembered) -> tuple[StackFacts, str]:
    """Both sides of the comparison, and what the planned side was made from.

    Docker is asked several things at a time, and while the plan is made: each start of its command takes a
    tenth of a second, of Compose a fifth.
    """
    with tempfile.TemporaryDirectory(prefix="warmstack-") as folder, ThreadPoolExecutor() as pool:
        asked_containers = pool.submit(project.inspected)
        planned = planned_text(project, settings)
        file = Path(folder) / "compose.yaml"
        file.write_text(planned.compose, encoding="utf-8")
        asked_config = pool.submit(project.compose_with(file).config)
        shown = asked_containers.result()
        containers = {container.service: container for container in map(container_from, shown)}
        cache = containers.get(WEIGHT_CACHE)
        asked_hashes = pool.submit(_hashes, project, file, cache, containers)
        asked_status = pool.submit(project.status_of, cache)
        config = asked_config.result()
        engines = [name for name in ENGINES if name in config["services"]]
        asked_starts = [
            (name, pool.submit(project.evidence_of, containers.get(name), ranks=settings.ranks))
            for name in engines
        ]
        images = _image_ids(project, {service["image"] for service in config["services"].values()})
        facts = StackFacts(
            planned=planned_services(config, asked_hashes.result(), images),
            running=tuple(running_service(item) for item in shown),
            supervisor=asked_status.result(),
            weight_bytes=_weight_bytes(_cache_variables(config, planned.unit)),
            processes=_processes(project, planned.unit),
            starts=tuple(
                LastStart(service=name, outcome=found.result().outcome, reason=found.result().reason)
                for name, found in asked_starts
            ),
        )
        return facts, planned.source


def _hashes(
    project: Project, file: Path, cache: Container | None, containers: Mapping[str, Container]
) -> dict[str, tuple[str, ...]]:
    """The right hashes of each service; engines may carry either (see `DesiredService`).

    Compose is asked for the second only where the first is not what an engine has.
    """
    if cache is None:
        return {name: (found,) for name, found in project.compose_with(file).config_hashes().items()}
    joined = joined_hashes(project.compose_with(file), cache.id)
    engines = [containers[name] for name in ENGINES if name in joined and name in containers]
    if engines and all(engine.config_hash == joined[engine.service] for engine in engines):
        return {name: (found,) for name, found in joined.items()}
    plain = project.compose_with(file).config_hashes()
    return {name: tuple(dict.fromkeys((plain[name], joined[name]))) for name in plain}


def planned_services(
    config: Mapping[str, Any], hashes: Mapping[str, tuple[str, ...]], images: Mapping[str, str]
) -> tuple[PlannedService, ...]:
    """The services of a file as `docker compose config --format json` gives them."""
    return tuple(
        PlannedService(
            name=name,
            hashes=hashes[name],
            image=service["image"],
            image_id=images.get(service["image"]),
            user=str(service.get("user") or ""),
            ipc=service.get("ipc"),
            mounts=_planned_mounts(service, config),
            identity=(service.get("labels") or {}).get("warmstack.identity"),
        )
        for name, service in config["services"].items()
    )


def running_service(inspected: Mapping[str, Any]) -> RunningService:
    """A container as `docker inspect` tells it."""
    container = container_from(inspected)
    host = inspected["HostConfig"]
    return RunningService(
        name=container.service,
        id=container.id,
        state=container.state,
        config_hash=container.config_hash,
        image_id=container.image_id,
        user=str(inspected["Config"].get("User") or ""),
        ipc=str(host.get("IpcMode") or ""),
        pid=str(host.get("PidMode") or ""),
        mounts=frozenset(
            MountFact(
                target=mount["Destination"],
                kind=mount["Type"],
                source=mount["Name"] if mount["Type"] == "volume" else mount["Source"],
                read_only=not mount["RW"],
            )
            for mount in inspected.get("Mounts") or ()
            if mount["Type"] != "tmpfs"
        ),
        identity=container.identity,
        started_at=container.started_at,
    )


def _planned_mounts(service: Mapping[str, Any], config: Mapping[str, Any]) -> frozenset[MountFact]:
    """Volumes and secrets; Compose mounts a secret that is a file as a read-only bind."""
    volumes, secrets = config.get("volumes") or {}, config.get("secrets") or {}
    found = {
        MountFact(
            target=mount["target"],
            kind=mount["type"],
            source=volumes[mount["source"]]["name"] if mount["type"] == "volume" else mount["source"],
            read_only=bool(mount.get("read_only", False)),
        )
        for mount in service.get("volumes") or ()
        if mount["type"] in ("volume", "bind")
    }
    for secret in service.get("secrets") or ():
        target = secret.get("target") or secret["source"]
        path = target if target.startswith("/") else f"/run/secrets/{target}"
        source = secrets[secret["source"]]["file"]
        found.add(MountFact(target=path, kind="bind", source=source, read_only=True))
    return frozenset(found)


def _cache_variables(config: Mapping[str, Any], unit: str | None) -> Mapping[str, str]:
    """What the plan tells the supervisor, in the Compose file or in the unit."""
    if unit is None:
        return (config["services"].get(WEIGHT_CACHE) or {}).get("environment") or {}
    pairs = (words[0].partition("=") for words in read_unit(unit)["Environment"])
    return {name: value for name, _, value in pairs}


def _processes(project: Project, unit: str | None) -> tuple[CacheProcess, CacheProcess] | None:
    """The weight cache's process on the host as planned and as it runs; None where nobody can tell."""
    host = project.host_cache
    if host is None or unit is None:
        return None
    try:
        running = host.process()
    except UserError:
        return None
    found = read_unit(unit)
    program, *words = found["ExecStart"][0]
    planned = CacheProcess(user=int(found["User"][0][0]), command=(program.removeprefix(":"), *words))
    return planned, CacheProcess(user=running.user, command=running.command)


def _weight_bytes(variables: Mapping[str, str]) -> int | None:
    """What the ranks should hold together, as the plan told the supervisor."""
    rank, ranks = (int(variables.get(f"WARMSTACK_{name}") or 0) for name in ("WEIGHT_BYTES", "RANKS"))
    return rank * ranks or None


def _image_ids(project: Project, tags: set[str]) -> dict[str, str]:
    """Ids of the images that are there, by the name they were asked for."""
    told = project.docker.capture("inspect", "--type", "image", *sorted(tags), check=False)
    found: dict[str, str] = {}
    for image in json.loads(told.stdout or "[]"):
        names = (*(image.get("RepoTags") or ()), *(image.get("RepoDigests") or ()), image["Id"])
        found.update({name: image["Id"] for name in names if name in tags})
    return found
