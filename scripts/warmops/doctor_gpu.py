"""What `doctor` learns of GPUs: from `nvidia-smi`, and from the device files.

In: nothing but the host. Out: `GpuHost`, empty where there is no driver. It judges nothing.
"""

from __future__ import annotations

import csv
import io
import os
import stat
import subprocess
from pathlib import Path

from warmops.doctor_facts import Gpu, GpuHost, GpuProcess
from warmops.hostfacts import MIB


def gpu_host() -> GpuHost:
    """Driver, GPUs and who holds their memory, from `nvidia-smi`; nothing where it is not there or fails."""
    gpus = _nvidia_smi("--query-gpu=uuid,name,memory.total,memory.free,driver_version")
    processes = _nvidia_smi("--query-compute-apps=gpu_uuid,pid,process_name,used_memory")
    found = parse_gpu_host(gpus, processes)
    return GpuHost(driver=found.driver, gpus=found.gpus, unlinked=unlinked_devices(Path("/dev")))


def parse_gpu_host(gpus: str, processes: str) -> GpuHost:
    """The two tables of `nvidia-smi` in CSV without header and units; memory in MiB."""
    holders: dict[str, list[GpuProcess]] = {}
    for row in _rows(processes, columns=4):
        used = int(row[3]) * MIB if row[3].isdigit() else None
        holders.setdefault(row[0], []).append(GpuProcess(pid=int(row[1]), name=row[2], used_bytes=used))
    rows = _rows(gpus, columns=5)
    return GpuHost(
        driver=rows[0][4] if rows else None,
        gpus=tuple(
            Gpu(
                uuid=row[0],
                name=row[1],
                total_bytes=int(row[2]) * MIB,
                free_bytes=int(row[3]) * MIB,
                processes=tuple(holders.get(row[0], ())),
            )
            for row in rows
        ),
    )


def unlinked_devices(devices: Path) -> tuple[str, ...]:
    """NVIDIA's character devices that have no link `char/<major>:<minor>`."""
    missing = []
    for node in sorted(devices.glob("nvidia*")):
        facts = node.stat()
        if stat.S_ISCHR(facts.st_mode):
            link = devices / "char" / f"{os.major(facts.st_rdev)}:{os.minor(facts.st_rdev)}"
            if not link.exists():
                missing.append(str(node))
    return tuple(missing)


def _nvidia_smi(query: str) -> str:
    command = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return told.stdout if told.returncode == 0 else ""


def _rows(text: str, *, columns: int) -> list[list[str]]:
    rows = csv.reader(io.StringIO(text), skipinitialspace=True)
    return [row for row in rows if len(row) == columns]
