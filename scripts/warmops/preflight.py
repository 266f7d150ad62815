"""What `up` asks of memory and disk once it knows more than `doctor` does: whether weights are held already.

In: the plan, or whether images are there, and the host's numbers. Out: nothing, or a UserError (exit code 1)
with every problem and its hint.
"""

from __future__ import annotations

from warmops.console import warn
from warmops.gpu_claims import gpu_problems, read_claims, shared
from warmops.hostfacts import gpu_facts, memory_kib
from warmops.project import Project
from warmops.units import mebibytes
from warmplan import Plan, Problem, UserError

GIB = 1024**3
# Measured on the CPU images: wheels, packages, and what Docker copies while it makes layers of them.
BUILD_BYTES = 10 * GIB
ROOM_BYTES = 1 * GIB


def check_disk(free: int | None, *, images_are_there: bool) -> None:
    """Room for what `up` is about to write where Docker keeps its data, of which `free` bytes are free."""
    needed = ROOM_BYTES if images_are_there else BUILD_BYTES
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
    problems = memory_problems(plan.budget.steady_bytes, plan.weight_cache.shm_bytes or 0, available)
    if problems:
        raise UserError(problems, exit_code=1)


def check_gpus(plan: Plan, project: Project) -> None:
    """Whether the plan fits beside those of other projects whose weight caches hold the same GPUs."""
    if plan.platform != "cuda":
        return
    gpus = gpu_facts()
    claims = read_claims(project.docker, gpus, without=project.name)
    problems = gpu_problems(plan, claims, gpus)
    if problems:
        raise UserError(problems, exit_code=1)
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
