"""Making what runs like the Compose file that is in force.

In: a project, the changes that were decided. Out: the commands that carry them out, in the order that loses
nothing: engines leave before their weight cache and come back after it, each finishes what it is working on
before it leaves, within bounds, and of two on weights that stay one serves.
"""

from __future__ import annotations

import time

from warmops.changes import ENGINES, WEIGHT_CACHE, Changes
from warmops.console import failure, heading, say
from warmops.draining import Draining
from warmops.project import Project
from warmops.route import show_route
from warmops.starts import EngineFailed, await_engine


def carry_out(project: Project, changes: Changes) -> None:
    """Make what runs like the project's Compose file, which must be in force already."""
    if changes.nothing:
        return
    replaced = set(changes.services("recreate", "remove"))
    if _can_take_turns(project, changes):
        _take_turns(project, changes)
        replaced -= {*ENGINES}
    going = tuple(service for service in ENGINES if service in replaced)
    with Draining(project, project.remembered(), going) as drained:
        # Compose recreates what joins a namespace only when its own block changed: engines are removed by
        # name, and before the weight cache, so that their weights are unmapped before they are freed.
        for service in (*going, *({WEIGHT_CACHE} & replaced)):
            say(f"removing {service}: {_why(changes, service)}")
            project.remove(service)
        drained.gone()
        orphans = ("--remove-orphans",) if changes.services("remove") else ()
        project.compose.run("up", "--detach", *orphans)


def _can_take_turns(project: Project, changes: Changes) -> bool:
    """Whether both engines are to be made anew while the weights stay, and one of them serves meanwhile."""
    cache = changes.of(WEIGHT_CACHE)
    if cache is not None and cache.action != "keep":
        return False
    if not set(ENGINES) <= set(changes.services("recreate")):
        return False
    route = show_route(project)
    held = (project.supervisor_status() or {}).get("state") == "held"
    return held and route is not None and route.serving is not None


def _take_turns(project: Project, changes: Changes) -> None:
    """One engine after the other, the one that does not serve first. Raises UserError when it does not
    become ready: then the other one serves on.
    """
    route, settings = show_route(project), project.remembered()
    serving = route.serving if route is not None else None
    for service in sorted(ENGINES, key=lambda name: name == serving):
        heading(f"making {service} anew ({_why(changes, service)}) while the other engine serves")
        with Draining(project, settings, (service,)) as drained:
            begun_at = time.time()
            project.remove(service)
            drained.gone()
            project.compose.run("up", "--detach", "--no-deps", service)
            try:
                await_engine(project, settings, since=begun_at, beside=True, service=service)
            except EngineFailed as failed:
                hint = f"make logs SERVICE={service} PROJECT={project.name}"
                raise failure(f"{service} does not start: {failed}", hint, exit_code=1) from failed


def _why(changes: Changes, service: str) -> str:
    change = changes.of(service)
    return change.why if change is not None else ""
