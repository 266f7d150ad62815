"""The checks of `doctor` that are about GPUs: runtime, driver, memory, and what a systemd reload takes away.

In: `DoctorFacts`. Out: a verdict each. They ask nothing themselves.
"""

from __future__ import annotations

from typing import Final

from warmops.doctor_facts import DoctorFacts, Gpu
from warmops.doctor_verdicts import NO_ENGINE, NO_PLAN, NOT_CUDA, Verdict, fail, ok, skip, warn
from warmops.hostfacts import gpu_way
from warmops.pins import version_numbers
from warmops.units import mebibytes

# docs.nvidia.com/deploy/cuda-compatibility, table of minor-version compatibility, read November 2026.
DRIVER_MINIMUM: Final = {11: 450, 12: 525, 13: 580}


def check_runtime(facts: DoctorFacts) -> Verdict:
    if not _is_cuda(facts):
        return NOT_CUDA
    if facts.engine.problem is not None:
        return NO_ENGINE
    configure = "nvidia-ctk runtime configure --runtime=docker && systemctl restart docker"
    engine = facts.engine
    way = gpu_way(version=engine.version, runtimes=engine.runtimes, cdi_devices=engine.cdi_devices)
    if way is not None:
        return ok({"runtime": "Docker has the runtime nvidia", "cdi": "Docker hands GPUs over by CDI"}[way])
    if engine.cdi_devices:
        return fail(
            f"Docker Engine {engine.version} knows GPUs by CDI, and before 29 `driver: nvidia` needs "
            "the runtime",
            configure,
        )
    return fail(
        "Docker has no NVIDIA runtime and no CDI device, so no container gets a GPU",
        f"install nvidia-container-toolkit, then {configure}",
    )


def check_driver(facts: DoctorFacts) -> Verdict:
    wish = facts.wish
    if wish is None or wish.platform != "cuda":
        return NOT_CUDA
    if facts.gpu.driver is None:
        return fail("nvidia-smi shows no NVIDIA driver on this host", "install NVIDIA's driver")
    needed = DRIVER_MINIMUM.get(version_numbers(wish.cuda or "")[0]) if wish.cuda else None
    if needed is None:
        return skip(f"driver {facts.gpu.driver}; the image's CUDA version is not known")
    if version_numbers(facts.gpu.driver)[0] < needed:
        return fail(
            f"driver {facts.gpu.driver} is too old for the image's CUDA {wish.cuda}",
            f"install driver {needed} or newer",
        )
    return ok(f"driver {facts.gpu.driver} serves the image's CUDA {wish.cuda}")


def check_gpu_memory(facts: DoctorFacts) -> Verdict:
    wish = facts.wish
    if wish is None or wish.platform != "cuda":
        return NOT_CUDA
    if facts.gpu.driver is None:
        return skip("nvidia-smi shows no GPU")
    if wish.runs:
        return skip("this project's weight cache runs and holds its share")
    used = [gpu for gpu in facts.gpu.gpus if gpu.uuid in wish.gpus] or facts.gpu.gpus[: wish.gpu_count]
    if len(used) < wish.gpu_count:
        return fail(
            f"{len(used)} of the {wish.gpu_count} GPUs that are asked for are here",
            "lower parallel.tensor or gpu.count, or correct gpu.devices",
        )
    if wish.memory_bytes is None:
        return NO_PLAN
    short = [gpu for gpu in used if gpu.free_bytes < wish.memory_bytes]
    if short:
        text = "; ".join(_gpu_sentence(gpu, wish.memory_bytes) for gpu in short)
        return fail(text, "stop what holds it, or plan with less (engine.kv_cache)")
    free = min(gpu.free_bytes for gpu in used)
    return ok(f"{mebibytes(free)} or more are free on each GPU, {mebibytes(wish.memory_bytes)} are planned")


def check_cgroups(facts: DoctorFacts) -> Verdict:
    if not _is_cuda(facts):
        return NOT_CUDA
    if facts.engine.problem is not None:
        return NO_ENGINE
    driver = facts.engine.cgroup_driver
    if driver != "systemd":
        return ok(f"cgroup driver {driver}: a systemd reload takes no GPU away")
    if facts.gpu.unlinked:
        return warn(
            f"cgroup driver systemd, and {len(facts.gpu.unlinked)} NVIDIA device files have no link in "
            "/dev/char: after a systemd reload running containers lose their GPUs",
            "nvidia-ctk system create-dev-char-symlinks --create-all, at each boot; "
            'or "exec-opts": ["native.cgroupdriver=cgroupfs"] in /etc/docker/daemon.json',
        )
    return ok("cgroup driver systemd, and every NVIDIA device file has its link in /dev/char")


def _is_cuda(facts: DoctorFacts) -> bool:
    return facts.wish is not None and facts.wish.platform == "cuda"


def _gpu_sentence(gpu: Gpu, needed: int) -> str:
    holders = ", ".join(f"{p.pid} {p.name} ({mebibytes(p.used_bytes)})" for p in gpu.processes)
    held = f", held by {holders}" if holders else ", held by processes that nvidia-smi does not show"
    size = f"{mebibytes(gpu.free_bytes)} of {mebibytes(gpu.total_bytes)} are free"
    return f"{gpu.uuid} ({gpu.name}): {size}, {mebibytes(needed)} are planned{held}"
