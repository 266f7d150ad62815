"""Which project a command is about: the one named, else the one brought up last.

In: parsed arguments. Out: a `Project`. `up` alone plans from an environment; every other command acts on what
`up` remembered, so that a model or a port given to `up` need not be given again.
"""

from __future__ import annotations

import argparse

from warmops.console import failure
from warmops.project import Project, Remembered, last_project


def add_target(parser: argparse.ArgumentParser) -> None:
    """The options by which every command on a running stack finds it."""
    parser.add_argument("--env", metavar="NAME", help="environment; default: that of the last `up`")
    parser.add_argument("--project", metavar="NAME", help="project; default: that of the last `up`")


def find_project(arguments: argparse.Namespace) -> Project:
    """The project that is meant. Raises UserError (exit code 2) when nothing was brought up."""
    name = arguments.project or last_project(arguments.env or None)
    if name is None:
        where = f" in the environment {arguments.env}" if arguments.env else ""
        raise failure(f"nothing has been brought up here{where}", "bring it up first: make up", exit_code=2)
    return Project(name=name)


def find_target(arguments: argparse.Namespace) -> tuple[Project, Remembered]:
    project = find_project(arguments)
    return project, project.remembered()
