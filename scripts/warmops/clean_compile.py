"""`clean-compile`: remove the volumes with compiled kernels and with what engines have learned to import.

In: a project with no engine running. Out: fewer volumes. It never touches the weight cache, which has none of
them; the next `up` makes them anew, and the next start compiles again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable

from warmops.changes import ENGINES, Container
from warmops.console import failure, say
from warmops.project import Project
from warmops.target import add_target, find_project

VOLUME_PREFIX = "compile-"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)


def run(arguments: argparse.Namespace) -> int:
    project = find_project(arguments)
    refuse_while_running(project.containers(), project.name)
    volumes = compile_volumes(project)
    for service in ENGINES:
        project.remove(service)  # a container that has stopped still holds on to its volumes
    for volume in volumes:
        project.docker.run("volume", "rm", volume)
    say(f"removed {', '.join(volumes)}" if volumes else "there was nothing to remove")
    say(f"the next engine compiles again: make up PROJECT={project.name}")
    if arguments.json:
        print(json.dumps({"project": project.name, "removed": volumes}))
    return 0


def refuse_while_running(containers: Iterable[Container], project: str) -> None:
    """Raises UserError (exit code 1) when an engine runs: it reads and writes what would be removed."""
    running = [found.service for found in containers if found.service in ENGINES and found.running]
    if running:
        hint = f"make down PROJECT={project} stops it and keeps the weights held"
        raise failure(f"{' and '.join(running)} of {project} runs", hint, exit_code=1)


def compile_volumes(project: Project) -> list[str]:
    """Names of this project's volumes whose key in the Compose file begins with `compile-`."""
    label = f"label=com.docker.compose.project={project.name}"
    form = '{{.Name}} {{.Label "com.docker.compose.volume"}}'
    told = project.docker.capture("volume", "ls", "--filter", label, "--format", form).stdout
    pairs = [line.split() for line in told.splitlines()]
    return [pair[0] for pair in pairs if len(pair) == 2 and pair[1].startswith(VOLUME_PREFIX)]
