"""What the Compose file wants beside what runs, and making the second like the first.

In: a project, a Compose file that is not in force yet. Out: `Changes`; and the commands that carry them out
in the order that loses nothing: the engine leaves before its weight cache, and comes back after it.
"""

from __future__ import annotations

from collections.abc import Iterable

from warmops.changes import ENGINE, WEIGHT_CACHE, Changes, DesiredService, decide
from warmops.console import say
from warmops.docker import Compose, DockerError
from warmops.project import Project
from warmplan import Plan


def compare(project: Project, wanted: Compose, plan: Plan) -> Changes:
    """What `up` would do to each service. Looks only."""
    hashes = wanted.config_hashes()
    images = _image_ids(project, {service.image for service in plan.services})
    desired = tuple(
        DesiredService(
            name=service.name,
            config_hash=hashes[service.name],
            image_id=images[service.image],
            model=dict(service.labels).get("warmstack.model"),
        )
        for service in plan.services
    )
    return decide(desired, project.containers())


def carry_out(project: Project, changes: Changes) -> None:
    """Make what runs like the project's Compose file, which must be in force already."""
    if changes.nothing:
        return
    compose = project.compose
    replaced = set(changes.services("recreate", "remove"))
    # Compose recreates what joins a namespace only when its own block changed: the engine is removed by
    # name, and before the weight cache, so that its weights are unmapped before they are freed.
    for service in (ENGINE, WEIGHT_CACHE):
        if service in replaced:
            say(f"removing {service}: {_why(changes, service)}")
            compose.run("rm", "--stop", "--force", service)
    orphans = ("--remove-orphans",) if changes.services("remove") else ()
    compose.run("up", "--detach", *orphans)


def _image_ids(project: Project, tags: Iterable[str]) -> dict[str, str]:
    found = {}
    for tag in tags:
        image = project.docker.inspect(tag, "image")
        if image is None:
            raise DockerError(f"the image {tag} is not there", "make images")
        found[tag] = str(image["Id"])
    return found


def _why(changes: Changes, service: str) -> str:
    change = changes.of(service)
    return change.why if change is not None else ""
