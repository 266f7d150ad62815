"""What `doctor` knows of a host: data only.

In: nothing. Out: frozen records, filled by `doctor_gather` and judged by `doctor_checks`. None stands for
"could not be learnt here", never for zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class EngineFacts:
    """The Docker engine. `problem` says why it does not answer; the fields below are empty then.

    `folder` is where it keeps its data, `clock_offset_seconds` how far its clock is ahead of this program's.
    """

    problem: str | None = None
    version: str = ""
    api: str = ""
    compose: str | None = None
    runtimes: tuple[str, ...] = ()
    cdi_devices: tuple[str, ...] = ()
    cgroup_driver: str = ""
    security_options: tuple[str, ...] = ()
    folder: str = ""
    clock_offset_seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class GpuProcess:
    """A process that holds memory of a GPU, by its id on the host; some drivers do not tell how much."""

    pid: int
    name: str
    used_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class Gpu:
    uuid: str
    name: str
    total_bytes: int
    free_bytes: int
    processes: tuple[GpuProcess, ...] = ()


@dataclass(frozen=True, kw_only=True)
class GpuHost:
    """The NVIDIA driver. `unlinked` are device files that have no link in /dev/char."""

    driver: str | None = None
    gpus: tuple[Gpu, ...] = ()
    unlinked: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class MachineFacts:
    """Memory, disk and kernel. `dev_shm_bytes` is the size of the host's own /dev/shm.

    `selinux` is None on a kernel without it.
    """

    memory_available_bytes: int
    disk_free_bytes: int | None
    dev_shm_bytes: int
    pid_max: int | None
    selinux: Literal["enforcing", "permissive"] | None


@dataclass(frozen=True, kw_only=True)
class PortFacts:
    """A port of the environment; `problem` None when it is free or this project's own."""

    variable: str
    host: str
    port: int
    problem: str | None


@dataclass(frozen=True, kw_only=True)
class HostCacheFacts:
    """The weight cache as a process of the host: its unit, its socket, its state (None: no answer)."""

    unit: str
    socket: str
    state: str | None


@dataclass(frozen=True, kw_only=True)
class WishFacts:
    """What the environment asks of the host. Bytes are None while no plan tells them.

    `memory_bytes` is one GPU's on `cuda` and the host's on `cpu`; `gpus` are UUIDs, or the first `gpu_count`
    when there are none; `cuda` is the CUDA version of the pinned image. `folder_problems` are of a local
    model. `runs` says that this project's weight cache or engine is up already: what they hold is in use for
    a reason. `host_cache` is None where a container is the weight cache.
    """

    environment: str
    platform: str
    model: str
    is_local: bool
    offline: bool = False
    folder_problems: tuple[str, ...] = ()
    ports: tuple[PortFacts, ...] = ()
    gpu_count: int = 0
    gpus: tuple[str, ...] = ()
    cuda: str | None = None
    memory_bytes: int | None = None
    shm_bytes: int | None = None
    weight_bytes: int | None = None
    on_disk: bool | None = None
    images_are_there: bool | None = None
    runs: bool = False
    host_cache: HostCacheFacts | None = None


@dataclass(frozen=True, kw_only=True)
class HubFacts:
    """`asked` is where a request went (None: nowhere), `problem` why no answer came, `token` no value."""

    asked: str | None = None
    problem: str | None = None
    token: Literal["set", "empty", "none"] = "none"


@dataclass(frozen=True, kw_only=True)
class DoctorFacts:
    """Everything. `wish` is None when the environment is wrong; `wish_problem` says why it has no plan."""

    engine: EngineFacts
    gpu: GpuHost
    machine: MachineFacts
    hub: HubFacts
    wish: WishFacts | None
    wish_problem: str | None = None
    wish_hint: str | None = None
    compose_minimum: tuple[int, ...] = ()
