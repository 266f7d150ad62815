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
from dataclasses import asdict
from pathlib import Path
from typing import Any

from warmops.changes import ENGINES, WEIGHT_CACHE, Container
from warmops.differences import (
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
from warmplan import render_compose


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


def planned_text(project: Project, settings: Remembered) -> tuple[str, str]:
    """The Compose file that should be in force, and what it was made from."""
    folder = ENVIRONMENTS / settings.environment
    in_force = project.compose_file.read_text(encoding="utf-8")
    if not folder.is_dir():
        return in_force, f"the file of the last `up` (there is no {folder.name} among the environments here)"
    wanted = read_wanted(folder, settings_of(settings))
    if wanted.model is None or wanted.model.digest is None:
        model = wanted.spec.model.name
        return in_force, f"the file of the last `up` (the lock of {folder.name} does not hold {model})"
    return render_compose(plan_wanted(wanted)), f"the plan of {folder.name}"


def gather(project: Project, settings: Remembered) -> tuple[StackFacts, str]:
    """Both sides of the comparison, and what the planned side was made from.

    Docker is asked several things at a time, and while the plan is made: each start of its command takes a
    tenth of a second, of Compose a fifth.
    """
    with tempfile.TemporaryDirectory(prefix="warmstack-") as folder, ThreadPoolExecutor() as pool:
        asked_containers = pool.submit(project.inspected)
        text, source = planned_text(project, settings)
        file = Path(folder) / "compose.yaml"
        file.write_text(text, encoding="utf-8")
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
            weight_bytes=_weight_bytes(config),
            starts=tuple(
                LastStart(service=name, outcome=found.result().outcome, reason=found.result().reason)
                for name, found in asked_starts
            ),
        )
        return facts, source


def _hashes(
    project: Project, file: Path, cache: Container | None, containers: Mapping[str, Container]
) -> dict[str, tuple[str, ...]]:
    """The right hashes of each service; engines may carry either (see `DesiredService`).

    Compose is asked for the second only where the first is not what an engine has.
    """
    if cache is None:
        return {name: (found,) for name, found in project.compose_with(file).config_hashes().items()}
    joined = joined_hashes(project, file, cache.id)
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


def _weight_bytes(config: Mapping[str, Any]) -> int | None:
    """What the ranks should hold together, as the plan told the supervisor."""
    variables = (config["services"].get(WEIGHT_CACHE) or {}).get("environment") or {}
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
