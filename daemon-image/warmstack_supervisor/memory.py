"""Is there room for one copy of the weights?

In: bytes needed, and what the host says is free. Out: `Room`. Refuses to know: who holds the rest.
A second copy is what a restart of `vllm preload` makes while engines still map the first.
"""

import importlib.util
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from warmstack_supervisor.settings import Settings

SHM = Path("/dev/shm")
CGROUP = Path("/sys/fs/cgroup")
# One CUDA context beside the weights: 610 MiB measured (H200, driver 580, torch 2.11).
CONTEXT_BYTES = 640 * 2**20


@dataclass(frozen=True, kw_only=True)
class Supply:
    """One kind of memory: what is free now, and how much there is at all (None: not known, never refused for
    good).
    """

    name: str
    free_bytes: int
    total_bytes: int | None
    raise_it: str  # what to do when it is too small at all


@dataclass(frozen=True, kw_only=True)
class Room:
    """`reason` None: there is room. `never`: nothing that ends will make room."""

    reason: str | None = None
    never: bool = False


def find_room(settings: Settings) -> Room:
    if settings.platform == "cuda":
        return judge(settings.weight_bytes + CONTEXT_BYTES, _gpus(settings))
    return judge(settings.weight_bytes * settings.ranks, [_shared_memory(SHM), *_host_memory(CGROUP)])


def judge(needed_bytes: int, supplies: Iterable[Supply]) -> Room:
    """The worst finding: never fits, then no room now, then room."""
    tight: str | None = None
    for supply in supplies:
        need = f"the weights need {_mib(needed_bytes)}"
        if supply.total_bytes is not None and supply.total_bytes < needed_bytes:
            return Room(
                reason=f"{supply.name} has {_mib(supply.total_bytes)} in all, {need}: {supply.raise_it}",
                never=True,
            )
        if supply.free_bytes < needed_bytes:
            free = f"{supply.name} has {_mib(supply.free_bytes)} free, {need}"
            tight = (
                tight
                or f"{free}: it loads once an engine that maps an old copy has ended, or others make room"
            )
    return Room(reason=tight)


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:.0f} MiB"


def _shared_memory(folder: Path) -> Supply:
    info = os.statvfs(folder)
    return Supply(
        name=str(folder),
        free_bytes=info.f_bavail * info.f_frsize,
        total_bytes=info.f_blocks * info.f_frsize,
        raise_it="raise shm_size of weight-cache (on a host: mount -o remount,size=… /dev/shm)",
    )


def _host_memory(cgroup: Path) -> list[Supply]:
    available = _meminfo()["MemAvailable"]
    supplies = [
        Supply(name="the host's memory", free_bytes=available, total_bytes=None, raise_it="use a larger host")
    ]
    if limit := _cgroup_limit(cgroup):
        supplies.append(limit)
    return supplies


def _meminfo() -> dict[str, int]:
    """Bytes by name, from /proc/meminfo, which counts in KiB."""
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if len(words) > 2}


def _cgroup_limit(cgroup: Path) -> Supply | None:
    """The container's own limit (cgroup v2), or None when it has none. File cache counts as free: it is given
    back.
    """
    try:
        limit = (cgroup / "memory.max").read_text().strip()
        used = int((cgroup / "memory.current").read_text())
        stat = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
    except FileNotFoundError:
        return None
    if limit == "max":
        return None
    cache = int(stat.get("inactive_file", 0))
    return Supply(
        name="the container's memory limit",
        free_bytes=int(limit) - used + cache,
        total_bytes=int(limit),
        raise_it="raise mem_limit of weight-cache",
    )


def _gpus(settings: Settings) -> list[Supply]:
    """The GPUs of the ranks, through NVML, which needs no CUDA context and ignores CUDA_VISIBLE_DEVICES."""
    nvml = _nvml()
    nvml.nvmlInit()
    try:
        named = settings.gpus or tuple(str(index) for index in range(settings.ranks))
        return [_gpu(nvml, name) for name in named[: settings.ranks]]
    finally:
        nvml.nvmlShutdown()


def _gpu(nvml: ModuleType, name: str) -> Supply:
    by_index = name.isdecimal()
    handle = nvml.nvmlDeviceGetHandleByIndex(int(name)) if by_index else nvml.nvmlDeviceGetHandleByUUID(name)
    info = nvml.nvmlDeviceGetMemoryInfo(handle)
    return Supply(
        name=f"GPU {name}",
        free_bytes=info.free,
        total_bytes=info.total,
        raise_it="use a larger GPU, more of them, or a smaller model",
    )


def _nvml() -> ModuleType:
    """vLLM's own copy of pynvml, loaded from its file: importing the package `vllm` would bring torch in
    here.
    """
    vllm = importlib.util.find_spec("vllm")
    if vllm is None or not vllm.submodule_search_locations:
        raise ModuleNotFoundError("vllm is not installed", name="vllm")
    path = Path(vllm.submodule_search_locations[0]) / "third_party" / "pynvml.py"
    spec = importlib.util.spec_from_file_location("warmstack_pynvml", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # it looks itself up there while it runs
    spec.loader.exec_module(module)
    return module
