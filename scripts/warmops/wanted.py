"""Which plan a command that only looks is about: an environment named now, or what the last `up` was told.

In: parsed arguments, the state folders, the files of an environment, the GPUs of this host. Out: `Wanted`,
the validated wish with the model as its lock or its folder tells, and the plan of it. No container is asked.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from warmops.docker import Docker
from warmops.hostfacts import read_host
from warmops.model import local_folder
from warmops.pins import REPOSITORY
from warmops.project import STATE, Remembered, last_project, read_remembered
from warmops.wishes import choose_environment, read_overrides
from warmplan import (
    LockedModel,
    Override,
    Plan,
    Spec,
    build_spec,
    host_overrides,
    model_from_manifest,
    plan_stack,
    read_environment,
    read_lock,
    read_pins,
)

_REMEMBERED = "as the last `up` was told"


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A wish, where it is written, and its model; None when neither lock nor folder tells it."""

    folder: Path
    spec: Spec
    model: LockedModel | None


def find_wanted(
    arguments: argparse.Namespace, nvidia_is_usable: Callable[[], bool], *, state: Path = STATE
) -> Wanted:
    """The environment named now; without one that of the last `up`, else by what the host has.

    Settings of the command line win. Errors: `UserError` (exit code 2) for a wrong environment.
    """
    given = read_overrides(arguments, directory=Path.cwd())
    settings = None if arguments.env else _last_settings(arguments.project, state)
    if settings is None:
        return read_wanted(choose_environment(arguments.env, nvidia_is_usable), given)
    return read_wanted(
        choose_environment(settings.environment, nvidia_is_usable), (*settings_of(settings), *given)
    )


def read_wanted(folder: Path, overrides: tuple[Override, ...]) -> Wanted:
    """The wish in a folder, with overrides of which a later one wins."""
    given = tuple({override.key: override for override in overrides}.values())
    environment = read_environment(folder)
    # As `up` does: what nobody wrote about the GPUs, the host says. (`plan` is for other hosts too.)
    told = host_overrides(environment=environment, overrides=given, host=read_host(Docker(), "cuda"))
    spec = build_spec(environment=environment, overrides=(*given, *told))
    if spec.model.is_local:
        model = model_from_manifest(local_folder(spec.model.name)) if Path(spec.model.name).is_dir() else None
    else:
        model = read_lock(folder / "lock.yaml").find(name=spec.model.name, revision=spec.model.revision)
    return Wanted(folder=folder, spec=spec, model=model)


def settings_of(settings: Remembered) -> tuple[Override, ...]:
    """What changed the environment in the last `up`."""
    return tuple(
        Override(key=key, value=value, origin=_REMEMBERED) for key, value in settings.overrides.items()
    )


def plan_wanted(wanted: Wanted) -> Plan:
    """The plan of a wish. Errors: `UserError` (exit code 2) for one that cannot be."""
    return plan_stack(spec=wanted.spec, pins=read_pins(REPOSITORY / "compose/pins.yaml"), model=wanted.model)


def _last_settings(project: str | None, state: Path) -> Remembered | None:
    name = project or last_project(None, state=state)
    return read_remembered(state / name) if name else None
