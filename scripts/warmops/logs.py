"""`logs`: follow the logs of the stack, or of one service.

In: a project, perhaps a service. Out: log lines on stdout until the reader stops.
"""

from __future__ import annotations

import argparse

from warmops.changes import SURGE_PROFILE
from warmops.console import failure
from warmops.project import Project
from warmops.target import add_target, find_project


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    parser.add_argument("--service", metavar="NAME", help="one service; default: all")
    parser.add_argument("--tail", type=int, default=100, metavar="N", help="lines of the past to begin with")
    parser.add_argument("--no-follow", action="store_true", help="print what there is and stop")


def run(arguments: argparse.Namespace) -> int:
    project = find_project(arguments)
    require_service(project, arguments.service)
    options = ["--no-color", "--tail", str(arguments.tail), *(() if arguments.no_follow else ("--follow",))]
    wanted = [arguments.service] if arguments.service else []
    command = project.compose.with_profiles(SURGE_PROFILE).arguments("logs", *options, *wanted)
    with project.docker.stream(*command, quiet=False) as lines:
        for line in lines:
            print(line, flush=True)
    return 0


def require_service(project: Project, service: str | None) -> None:
    """Raises UserError (exit code 2) for a service the project has no container of, naming those it has."""
    known = sorted(container.service for container in project.containers())
    if not known:
        raise failure(f"{project.name} has no containers", f"make up PROJECT={project.name}", exit_code=1)
    if service and service not in known:
        raise failure(f"there is no service {service}", f"one of {', '.join(known)}", exit_code=2)
