"""Facts of this host that decide whether a stack can run here: memory, disk, ports, GPUs.

In: nothing but the host. Out: numbers. What they must be, `preflight` and the budget know.
"""

from __future__ import annotations

import csv
import errno
import io
import os
import shutil
import socket
import subprocess
from pathlib import Path

from warmops.docker import Docker
from warmplan import GpuFacts, HostFacts

MIB = 1024 * 1024


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


def has_nvidia_runtime(docker: Docker) -> bool:
    """Whether containers can get NVIDIA GPUs here: Docker knows the runtime and the driver shows a GPU."""
    told = docker.capture("info", "--format", "{{json .Runtimes}}", check=False)
    return told.ok and '"nvidia"' in told.stdout and bool(gpu_facts())


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


def docker_disk_free(docker: Docker) -> int | None:
    """Free bytes where Docker keeps images and volumes; None when that folder is not on this host."""
    told = docker.capture("info", "--format", "{{.DockerRootDir}}", check=False)
    folder = Path(told.stdout.strip() or "/nonexistent")
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


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
