"""What must be so before `up` creates anything; all that is wrong is said at once.

In: the spec, later the plan, and the host. Out: nothing, or a UserError with every problem and its hint.
Exit codes: 3 when this host cannot run the stack at all, 2 when the model or the wish is wrong, 1 when
something on the host is in the way (a port, memory, disk).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from warmops.console import warn
from warmops.docker import Docker
from warmops.gpu_claims import gpu_problems, read_claims, shared
from warmops.hostfacts import docker_disk_free, gpu_facts, has_nvidia_runtime, memory_kib, port_problem
from warmops.model import USER_ID, unreadable_files
from warmops.project import Project
from warmops.units import mebibytes
from warmplan import Plan, Problem, Spec, UserError

GIB = 1024**3
# Measured on the CPU images: packages, the builder's first stage, and the wheels that are linked into it.
BUILD_BYTES = 10 * GIB
ROOM_BYTES = 1 * GIB


def check_wish(spec: Spec, project: Project, *, asks_runtime: bool = True) -> None:
    """Before images are built: GPUs, ports and the local model folder."""
    docker = project.docker
    if spec.platform == "cuda" and asks_runtime and not has_nvidia_runtime(docker):
        hint = "install the NVIDIA Container Toolkit and its Docker runtime, or use ENV=cpu"
        problem = Problem(key="platform", problem="Docker has no usable NVIDIA runtime here", hint=hint)
        raise UserError([problem], exit_code=3)
    if spec.model.is_local:
        _raise(_folder_problems(spec.model.name), exit_code=2)
    _raise(_port_problems(spec, project), exit_code=1)


def check_disk(docker: Docker, *, images_are_there: bool) -> None:
    """Room for what `up` is about to write where Docker keeps its data."""
    needed = ROOM_BYTES if images_are_there else BUILD_BYTES
    free = docker_disk_free(docker)
    if free is None or free >= needed:
        return
    text = f"{mebibytes(needed)} are needed where Docker keeps its data and {mebibytes(free)} are free"
    hint = "remove what is not needed: docker system df shows it"
    raise UserError([Problem(key="disk", problem=text, hint=hint)], exit_code=1)


def check_memory(plan: Plan, *, weights_are_held: bool) -> None:
    """Whether the stack fits into memory that is free now; weights that are held have been paid for."""
    if plan.platform != "cpu" or weights_are_held:
        return
    available = memory_kib("MemAvailable") * 1024
    # The second engine of a roll looks for its memory when it begins.
    _raise(
        memory_problems(plan.budget.steady_bytes, plan.weight_cache.shm_bytes or 0, available), exit_code=1
    )


def check_gpus(plan: Plan, project: Project) -> None:
    """Whether the plan fits beside those of other projects whose weight caches hold the same GPUs."""
    if plan.platform != "cuda":
        return
    gpus = gpu_facts()
    claims = read_claims(project.docker, gpus, without=project.name)
    _raise(gpu_problems(plan, claims, gpus), exit_code=1)
    for gpu, others in shared(plan.weight_cache.gpus, claims, gpus):
        warn(f"GPU {gpu.uuid} also serves {', '.join(claim.project for claim in others)}; both plans fit")


def memory_problems(needed: int, shm: int, available: int) -> list[Problem]:
    """Problems of a stack that needs `needed` bytes in all and may fill `shm` bytes of shared memory."""
    problems = []
    hint = "stop something, use a smaller model, or lower engine.kv_cache.gib"
    if needed > available:
        text = f"the stack needs {mebibytes(needed)} and {mebibytes(available)} are available"
        problems.append(Problem(key="memory", problem=text, hint=hint))
    if shm > available:
        text = f"shared memory may grow to {mebibytes(shm)} and {mebibytes(available)} are available"
        problems.append(Problem(key="/dev/shm", problem=text, hint=hint))
    return problems


def _folder_problems(name: str) -> list[Problem]:
    folder = Path(name)
    if not folder.is_dir():
        hint = "give the folder that holds config.json and *.safetensors"
        return [Problem(key="model.name", problem=f"there is no folder {name}", hint=hint)]
    hint = f"the containers run as user {USER_ID}: chmod o+rX it"
    return [
        Problem(key="model.name", problem=f"{path} cannot be read by the containers", hint=hint)
        for path in unreadable_files(name)
    ]


def _port_problems(spec: Spec, project: Project) -> list[Problem]:
    wanted = [("gateway.port", "PORT", spec.gateway.host, spec.gateway.port)]
    if spec.open_webui.enabled:
        wanted.append(("open_webui.port", "WEBUI_PORT", spec.open_webui.host, spec.open_webui.port))
    own = project.own_ports()
    problems = []
    for key, variable, host, port in wanted:
        reason = None if port in own else port_problem(host, port)
        if reason is not None:
            hint = f"choose another: make up {variable}={port + 1}"
            problems.append(Problem(key=key, problem=f"{host}:{port} {reason}", hint=hint))
    return problems


def _raise(problems: Iterable[Problem], *, exit_code: int) -> None:
    found = tuple(problems)
    if found:
        raise UserError(found, exit_code=exit_code)
