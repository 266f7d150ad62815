"""`down`: stop what serves and keep the weights; with `--all` free them too.

In: a project. Out: fewer containers, and a sentence on what is left. Volumes go only when asked for by name.
"""

from __future__ import annotations

import argparse
import json

from warmops import side_project
from warmops.changes import ENGINES, SURGE_PROFILE, WEIGHT_CACHE
from warmops.console import failure, say
from warmops.project import Project
from warmops.project_lock import alone
from warmops.roll_record import forget_record
from warmops.target import add_target, find_project
from warmops.units import mebibytes
from warmplan.placement import HUB_VOLUME

_SERVES = (*ENGINES, "gateway", "open-webui")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    parser.add_argument("--all", action="store_true", help="the weight cache too: frees the weights")
    parser.add_argument(
        "--volumes", action="store_true", help="with --all: chats, accounts, sockets and caches too"
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.volumes and not arguments.all:
        hint = "make down-all VOLUMES=yes"
        raise failure("volumes are in use as long as the weight cache runs", hint, exit_code=2)
    project = find_project(arguments)
    if not project.compose_file.exists():
        say(f"{project.name} was never brought up here: nothing to do")
        return 0
    with alone(project, "down"):
        _remove_helpers(project)
        kept = _down_all(project, volumes=arguments.volumes) if arguments.all else _down(project)
        forget_record(project.folder)
    if arguments.json:
        print(json.dumps({"project": project.name, "kept": kept}))
    return 0


def _remove_helpers(project: Project) -> None:
    """Engines of a `bench` or a `load` that was killed: they would hold the network and the weights."""
    for name in side_project.project_names(project):
        left = project.docker.containers(f"label=com.docker.compose.project={name}")
        if left:
            project.docker.run("rm", "--force", *left)


def _down(project: Project) -> list[str]:
    """Remove what serves, engines first; the weight cache goes on holding."""
    for service in _SERVES:
        project.remove(service)
    status = project.supervisor_status()
    host = project.host_cache
    if status is None:
        say("no weight cache runs: no weights are held")
        return []
    held = mebibytes(int(status.get("bytes_held") or 0))
    say(f"the weight cache stays and holds {held} of {status.get('model')}: make up is a warm start")
    free = f"make down-all PROJECT={project.name}" if host is None else f"sudo systemctl stop {host.unit}"
    say(f"to free them: {free}")
    return [WEIGHT_CACHE]


def _down_all(project: Project, *, volumes: bool) -> list[str]:
    """Remove everything: engines first, so that the weights are unmapped before they are freed."""
    compose = project.compose
    for service in ENGINES:
        project.remove(service)
    # With the second engine's profile: Compose leaves the volumes of services that it does not count alone.
    whole = compose.with_profiles(SURGE_PROFILE)
    whole.run("down", "--remove-orphans", *(("--volumes",) if volumes else ()))
    kept = remove_left_volumes(project) if volumes else volumes_of(project)
    if kept and volumes:
        say(f"in use by others, and so kept: {', '.join(kept)}")
    elif kept:
        say(
            f"kept volumes: {', '.join(kept)} (make down-all VOLUMES=yes PROJECT={project.name} removes them)"
        )
    host = project.host_cache
    if host is not None:
        if host.status() is not None:
            say(f"the weight cache is a process of this host and holds on: sudo systemctl stop {host.unit}")
        return kept
    say(
        f"kept for all projects: {HUB_VOLUME} with the model files (docker volume rm {HUB_VOLUME} removes it)"
    )
    return kept


def volumes_of(project: Project) -> list[str]:
    """Names of the project's volumes."""
    label = f"label=com.docker.compose.project={project.name}"
    return project.docker.capture("volume", "ls", "--quiet", "--filter", label).stdout.split()


def remove_left_volumes(project: Project) -> list[str]:
    """Remove those that the Compose file does not have any more: of a service that was switched off since, of
    another version. Returns what is in use.
    """
    for name in volumes_of(project):
        project.docker.run("volume", "rm", name, check=False)
    return volumes_of(project)
