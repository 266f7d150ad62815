"""What the Compose file wants beside what runs.

In: a project, a proposal that is not in force yet. Out: `Changes`. Looks only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from warmops.changes import ENGINES, WEIGHT_CACHE, Changes, DesiredService, decide
from warmops.docker import Compose, DockerError
from warmops.project import Project
from warmops.proposal import Proposal
from warmplan import Plan


def compare(proposal: Proposal, plan: Plan) -> Changes:
    """What putting the proposal in force would do to each service. Looks only."""
    project = proposal.project
    containers = project.containers()
    hashes = proposal.compose.config_hashes()
    cache = next((container for container in containers if container.service == WEIGHT_CACHE), None)
    joined = {} if cache is None else joined_hashes(proposal.compose, cache.id)
    images = _image_ids(project, {service.image for service in plan.standing})
    desired = tuple(
        DesiredService(
            name=service.name,
            config_hash=hashes[service.name],
            image_id=images[service.image],
            joined_hash=joined.get(service.name) if service.name in ENGINES else None,
            model=dict(service.labels).get("warmstack.model"),
        )
        for service in plan.standing
    )
    return decide(desired, containers)


def joined_hashes(compose: Compose, cache: str) -> dict[str, str]:
    """All hashes once the `ipc` of engines names the weight cache's container, whose id is `cache`."""
    text = compose.file.read_text(encoding="utf-8")
    resolved = compose.file.with_name("compose.joined.yaml")
    resolved.write_text(text.replace(f"service:{WEIGHT_CACHE}", f"container:{cache}"), encoding="utf-8")
    try:
        return replace(compose, file=resolved).config_hashes()
    finally:
        resolved.unlink()


def _image_ids(project: Project, tags: Iterable[str]) -> dict[str, str]:
    found = {}
    for tag in tags:
        image = project.docker.inspect(tag, "image")
        if image is None:
            raise DockerError(f"the image {tag} is not there", "make images")
        found[tag] = str(image["Id"])
    return found
