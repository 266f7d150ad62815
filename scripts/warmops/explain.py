"""`explain`: why an engine of an environment would or would not map the weights that are held.

In: an environment's plan, and the weight-cache container as Docker shows it. Out: a table field by field,
or JSON; exit code 1 when the engine would miss. No container is asked: this is what the files and Docker
say, and `status` is what the supervisor says. Of a weight cache on the host the process is looked at, which
needs root.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from warmops.changes import WEIGHT_CACHE
from warmops.docker import Docker
from warmops.host_cache import HostCache
from warmops.hostfacts import nvidia_is_usable
from warmops.model import store_for
from warmops.project import Project
from warmops.table import print_table
from warmops.wanted import Wanted, find_wanted, plan_wanted
from warmops.wishes import add_wishes
from warmplan import Explanation, Plan, explain_identity, held_fields, model_from_manifest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_wishes(parser)


def run(arguments: argparse.Namespace) -> int:
    docker = Docker()
    wanted = _with_model_on_disk(docker, find_wanted(arguments, lambda: nvidia_is_usable(docker)))
    plan = plan_wanted(wanted)
    project = Project(name=plan.project, docker=docker)
    held = _held_on_host(plan) if plan.unit is not None else held_in_container(project)
    found = explain_identity(plan.identity, held)
    if arguments.json:
        print(json.dumps(as_facts(found, project=plan.project, identity=plan.identity.value), indent=2))
    else:
        _show(found, project=plan.project)
    return 0 if found.hit else 1


def held_in_container(project: Project) -> dict[str, str] | None:
    """Identity fields of the weight-cache container that runs; None when none does."""
    cache = project.container(WEIGHT_CACHE)
    shown = project.docker.inspect(cache.id) if cache is not None and cache.running else None
    return None if shown is None else fields_of(shown)


def _held_on_host(plan: Plan) -> dict[str, str] | None:
    """Of the process that answers at the project's socket; vLLM's version from what it says of itself."""
    variables = dict(plan.weight_cache.environment)
    cache = HostCache(project=plan.project, port=int(variables["WARMSTACK_STATUS_PORT"]))
    status = cache.status()
    if status is None:
        return None
    found = cache.process()
    image = f":{status.get('vllm_version')}-{found.environment.get('WARMSTACK_PLATFORM')}"
    return held_fields(command=found.command, environment=found.environment, image=image)


def fields_of(inspected: Mapping[str, Any]) -> dict[str, str]:
    """Identity fields of a weight-cache container, from `docker inspect`."""
    config = inspected["Config"]
    pairs = (item.partition("=") for item in config.get("Env") or ())
    environment = {name: value for name, _, value in pairs}
    return held_fields(command=config.get("Cmd") or (), environment=environment, image=config["Image"])


def as_facts(found: Explanation, *, project: str, identity: str) -> dict[str, Any]:
    return {
        "project": project,
        "identity": identity,
        "hit": found.hit,
        "sentence": found.sentence,
        "fields": [
            {"name": f.name, "meaning": f.meaning, "held": f.held, "wanted": f.wanted, "equal": f.equal}
            for f in found.fields
        ],
    }


def _with_model_on_disk(docker: Docker, wanted: Wanted) -> Wanted:
    """A hub model that the lock lacks, as `up` would find it on disk; asks no hub."""
    spec = wanted.spec
    if wanted.model is not None or spec.model.is_local:
        return wanted
    image = plan_wanted(wanted).engine.image
    if docker.inspect(image, "image") is None:
        return wanted
    manifest = store_for(docker, image, spec).find(spec.model.name, spec.model.revision)
    return wanted if manifest is None else replace(wanted, model=model_from_manifest(manifest))


def _show(found: Explanation, *, project: str) -> None:
    rows = [
        ("" if f.equal else "!", f.name, "nothing" if f.held is None else f.held, f.wanted, f.meaning)
        for f in found.fields
    ]
    print_table(("", "field", "held", "wanted", "meaning"), rows)
    print(f"\n{project}: {found.sentence}")
