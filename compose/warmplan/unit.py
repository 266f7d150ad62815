"""The weight cache as a systemd unit: the same supervisor, as a process of the host.

In: the planned weight cache. Out: `Unit`, which the template shows. Nothing volatile goes in here: whoever
installs a changed unit restarts it, and that drops the weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from warmplan.placement import HOST_VENV, host_folder
from warmplan.services import Service

UNIT_FILE: Final = "weight-cache.service"
# vLLM refuses a weight cache of another user than the engine's.
USER_ID: Final = 10001


@dataclass(frozen=True, kw_only=True)
class Unit:
    """One unit: `name` in /etc/systemd/system, `folder` relative to /var/lib and /var/cache."""

    name: str
    user: int
    folder: str
    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    stop_seconds: int


def plan_unit(project: str, weight_cache: Service) -> Unit:
    """The unit of a project's weight cache."""
    return Unit(
        name=unit_name(project),
        user=USER_ID,
        folder=f"warmstack/{host_folder(project)}",
        command=(f"{HOST_VENV}/bin/python", "-m", "warmstack_supervisor", *weight_cache.command),
        environment=tuple(dict(weight_cache.environment).items()),
        stop_seconds=weight_cache.stop_seconds,
    )


def unit_name(project: str) -> str:
    return f"{project}-{UNIT_FILE}"
