"""What a host adds to an environment that leaves it open: memory and architecture of its GPUs.

In: an environment, overrides from the command line, facts of the host. Out: more overrides, with their
origin, for keys that nobody wrote. The host never overrules what was written: a plan made for a server is the
plan that the server gets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from warmplan.constants import GIB
from warmplan.environment import Environment
from warmplan.host import GpuFacts, HostFacts
from warmplan.spec_values import Override, Values, gather

_ORIGIN: Final = "this host's GPUs"


def host_overrides(
    *, environment: Environment, overrides: Sequence[Override], host: HostFacts
) -> tuple[Override, ...]:
    """`gpu.memory_gib` and `gpu.architecture` of the GPUs that would be used; none on the CPU platform.

    The smallest memory counts, rounded down to a hundredth; GPUs of different kinds have no common
    architecture.
    """
    values = gather(environment.document, overrides)
    used = _used(values, host.gpus)
    if not values.has("platform") or values.text("platform") != "cuda" or not used:
        return ()
    found = []
    if not values.was_given("gpu.memory_gib"):
        memory = math.floor(min(gpu.total_bytes for gpu in used) / GIB * 100) / 100
        found.append(Override(key="gpu.memory_gib", value=f"{memory:.2f}", origin=_ORIGIN))
    kinds = {gpu.architecture for gpu in used}
    given = values.find("gpu.architecture")
    if len(kinds) == 1 and given is not None and given.origin == "default":
        found.append(Override(key="gpu.architecture", value=kinds.pop(), origin=_ORIGIN))
    return tuple(found)


def _used(values: Values, gpus: tuple[GpuFacts, ...]) -> tuple[GpuFacts, ...]:
    """The GPUs that are named, else the first ones."""
    named = values.texts("gpu.devices")
    if named:
        return tuple(gpu for gpu in gpus if gpu.uuid in named)
    count = values.integer("gpu.count") if values.has("gpu.count") else None
    if count is None:
        count = values.integer("parallel.tensor") if values.has("parallel.tensor") else 1
    return gpus[:count]
