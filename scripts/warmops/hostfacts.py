"""Facts of this host that decide whether a stack can run here: memory, disk, ports, GPUs.

In: nothing but the host. Out: numbers. What they must be, `preflight` and the budget know.
"""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import socket
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal

from warmops.docker import Docker
from warmops.pins import version_numbers
from warmplan import GpuFacts, HostFacts

MIB = 1024 * 1024
# From here on `driver: nvidia` is served by CDI too: github.com/moby/moby/pull/50228.
CDI_MINIMUM: Final = (29,)


def read_host(docker: Docker, platform: str) -> HostFacts:
    """Cores, memory and, on CUDA, the GPUs that the driver shows."""
    gpus = gpu_facts() if platform == "cuda" else ()
    return HostFacts(cores=os.cpu_count() or 1, memory_bytes=memory_kib("MemTotal") * 1024, gpus=gpus)


def memory_kib(field: str, *, meminfo: Path = Path("/proc/meminfo")) -> int:
    """A line of /proc/meminfo, in KiB as the kernel gives it."""
    for line in meminfo.read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise LookupError(f"{meminfo} has no line {field}")


def nvidia_is_usable(docker: Docker) -> bool:
    """Whether containers can get NVIDIA GPUs here: Docker hands them over and the driver shows one."""
    told = docker.capture("info", "--format", "{{json .}}", check=False)
    try:
        info = json.loads(told.stdout)
    except ValueError:
        return False
    version, runtimes = str(info.get("ServerVersion") or ""), info.get("Runtimes") or ()
    way = gpu_way(version=version, runtimes=runtimes, cdi_devices=cdi_devices(info))
    return way is not None and bool(gpu_facts())


def gpu_way(
    *, version: str, runtimes: Iterable[str], cdi_devices: Iterable[str]
) -> Literal["runtime", "cdi"] | None:
    """How this Docker engine serves `driver: nvidia`; None when it does not."""
    if "nvidia" in runtimes:
        return "runtime"
    return "cdi" if any(cdi_devices) and version_numbers(version) >= CDI_MINIMUM else None


def cdi_devices(info: Mapping[str, Any]) -> tuple[str, ...]:
    """NVIDIA's GPUs among the devices that `docker info` lists."""
    devices = (str(device.get("ID", "")) for device in info.get("DiscoveredDevices") or ())
    return tuple(device for device in devices if device.startswith("nvidia.com/gpu"))


def gpu_facts() -> tuple[GpuFacts, ...]:
    """GPUs as `nvidia-smi` tells; none when it is not there or fails."""
    query = "uuid,memory.total,memory.free,compute_cap"
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return parse_gpus(told.stdout) if told.returncode == 0 else ()


def parse_gpus(text: str) -> tuple[GpuFacts, ...]:
    """Lines `GPU-uuid, total MiB, free MiB, 9.0`; nvidia-smi counts memory in MiB."""
    rows = csv.reader(io.StringIO(text), skipinitialspace=True)
    return tuple(
        GpuFacts(
            uuid=row[0],
            total_bytes=int(row[1]) * MIB,
            free_bytes=int(row[2]) * MIB,
            architecture="sm" + row[3].replace(".", ""),
        )
        for row in rows
        if len(row) == 4
    )


def port_problem(host: str, port: int) -> str | None:
    """Why nothing can listen at this address now; None when something can."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # Docker's own proxy sets it too: without it a port in TIME_WAIT would count as taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            names = {errno.EADDRINUSE: "is in use", errno.EACCES: "needs root"}
            return names.get(error.errno or 0, f"cannot be used: {error.strerror}")
    return None
