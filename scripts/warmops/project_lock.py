"""One command at a time changes a project.

In: a project and the command's name. Out: the block runs alone, or a UserError (exit code 1) that names who
is at work. The lock ends with the process, however it ends: a killed command leaves nothing to clear away.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from warmops.console import failure
from warmops.project import Project


@contextmanager
def alone(project: Project, command: str) -> Iterator[None]:
    """Run the block while no other command changes the project. Docker's own commands do not ask."""
    project.folder.mkdir(parents=True, exist_ok=True)
    with _path(project).open("a", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            who = at_work(project) or "another command"
            hint = "wait until it is done, or end it by that id"
            raise failure(f"{who} is at work on {project.name}", hint, exit_code=1) from None
        file.truncate(0)
        file.write(f"`warm {command}` (process {os.getpid()})")
        file.flush()
        yield
        file.truncate(0)


def at_work(project: Project) -> str | None:
    """Which command holds the project now, with its process id; None when none does."""
    try:
        with _path(project).open(encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return file.read().strip() or "another command"
    except FileNotFoundError:
        pass
    return None


def _path(project: Project) -> Path:
    return project.folder / "lock"
