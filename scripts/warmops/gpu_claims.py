"""Which GPUs the weight caches of other projects hold, and what their plans take there.

In: containers as `docker inspect` tells them, the GPUs of this host in the driver's order. Out: `Claim`s, and
the problems of one more plan on the same GPUs. What is planned counts, not what is free now: an engine that
stands still for a moment comes back for its memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from warmops.docker import Docker
from warmplan import GpuFacts, Plan, Problem
from warmplan.constants import CUDA_CONTEXT, gib
from warmplan.services import Gpus

_PROJECT = "com.docker.compose.project"
_ROLE = "warmstack.role"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What one project takes of each of its GPUs, in bytes, as it was planned."""

    project: str
    uuids: tuple[str, ...]
    bytes: int


def read_claims(docker: Docker, gpus: Sequence[GpuFacts], *, without: str) -> tuple[Claim, ...]:
    """Claims of every project but one whose weight cache runs on this host."""
    ids = docker.containers(f"label={_ROLE}")
    if not ids:
        return ()
    told = docker.capture("inspect", "--type", "container", *ids, check=False)
    found: list[dict[str, Any]] = json.loads(told.stdout or "[]")
    return tuple(claim for claim in claims_of(found, gpus) if claim.project != without)


def claims_of(inspected: Iterable[Mapping[str, Any]], gpus: Sequence[GpuFacts]) -> tuple[Claim, ...]:
    """One claim for each project with a running weight cache; its engine counts even when it stands still."""
    projects: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for container in inspected:
        labels = container["Config"].get("Labels") or {}
        roles = projects.setdefault(str(labels.get(_PROJECT)), {})
        roles.setdefault(str(labels.get(_ROLE)), []).append(container)
    claims = []
    for project, roles in sorted(projects.items()):
        for cache in roles.get("weight-cache", ()):
            uuids = uuids_of(cache, gpus) if cache["State"]["Running"] else ()
            if uuids:
                planned = _held(cache) + sum(_engine(engine) for engine in roles.get("engine", ()))
                claims.append(Claim(project=project, uuids=uuids, bytes=planned))
    return tuple(claims)


def uuids_of(container: Mapping[str, Any], gpus: Sequence[GpuFacts]) -> tuple[str, ...]:
    """The GPUs that Docker gave to a container; NVIDIA's own variable counts where Docker gave none."""
    every = tuple(gpu.uuid for gpu in gpus)
    for request in container["HostConfig"].get("DeviceRequests") or ():
        named, count = request.get("DeviceIDs") or (), int(request.get("Count") or 0)
        # By CDI a device is called `nvidia.com/gpu=<index or UUID>`.
        found = [_uuid(str(name).rpartition("=")[2], every) for name in named]
        if found:
            return every if "all" in found else tuple(uuid for uuid in found if uuid)
        if count:
            return every if count < 0 else every[:count]
    variables = dict(line.partition("=")[::2] for line in container["Config"].get("Env") or ())
    told = variables.get("NVIDIA_VISIBLE_DEVICES", "")
    if told == "all":
        return every
    return tuple(uuid for name in told.split(",") if (uuid := _uuid(name.strip(), every)))


def gpu_problems(plan: Plan, claims: Iterable[Claim], gpus: Sequence[GpuFacts]) -> list[Problem]:
    """Why a plan cannot share a GPU with what other projects planned there; none where all of it fits."""
    taken = shared(plan.weight_cache.gpus, claims, gpus)
    own = plan.budget.steady_bytes
    problems = []
    for gpu, others in taken:
        sum_of_all = own + sum(claim.bytes for claim in others)
        if sum_of_all <= gpu.total_bytes:
            continue
        theirs = " and ".join(f"{claim.project} ({gib(claim.bytes)})" for claim in others)
        text = f"GPU {gpu.uuid} belongs to {theirs} already; with {gib(own)} of this plan it would need "
        text += f"{gib(sum_of_all)} and has {gib(gpu.total_bytes)}"
        hint = (
            "name another GPU under gpu.devices (`nvidia-smi -L` lists them), lower engine.kv_cache, or stop "
        )
        hint += f"the other: make down-all PROJECT={others[0].project}"
        problems.append(Problem(key="gpu.devices", problem=text, hint=hint))
    return problems


def shared(
    wanted: Gpus | None, claims: Iterable[Claim], gpus: Sequence[GpuFacts]
) -> list[tuple[GpuFacts, tuple[Claim, ...]]]:
    """Each GPU that a plan would use and others hold, with their claims."""
    if wanted is None:
        return []
    used = [gpu for gpu in gpus if gpu.uuid in wanted.devices] or list(gpus[: wanted.count])
    listed = list(claims)
    pairs = [(gpu, tuple(claim for claim in listed if gpu.uuid in claim.uuids)) for gpu in used]
    return [(gpu, others) for gpu, others in pairs if others]


def _held(cache: Mapping[str, Any]) -> int:
    """Weights and one context, from the weight cache's own settings."""
    variables = dict(line.partition("=")[::2] for line in cache["Config"].get("Env") or ())
    return int(variables.get("WARMSTACK_WEIGHT_BYTES") or 0) + CUDA_CONTEXT.bytes


def _engine(engine: Mapping[str, Any]) -> int:
    """What the plan of an engine says that it takes, which its label tells."""
    return int((engine["Config"].get("Labels") or {}).get("warmstack.gpu-bytes") or 0)


def _uuid(name: str, every: Sequence[str]) -> str:
    """A UUID or an index of the driver's order as a UUID; empty for what is neither."""
    if name == "all" or name in every:
        return name
    return every[int(name)] if name.isdigit() and int(name) < len(every) else ""
