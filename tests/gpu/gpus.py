"""GPUs and the memory of their processes, as `nvidia-smi` tells.

In: what `nvidia-smi` prints. Out: plain data, memory in MiB as the driver counts it. Refuses to know:
containers, and what the memory is for.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from xml.etree import ElementTree


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU in the driver's order; `minor` is N of its node `/dev/nvidiaN`."""

    uuid: str
    minor: int
    total_mib: int
    used_mib: int
    name: str
    driver: str


@dataclass(frozen=True, kw_only=True)
class ProcessMemory:
    """What one process of the host holds on one GPU."""

    uuid: str
    pid: int
    mib: int


def read_gpus() -> tuple[Gpu, ...]:
    return parse_gpus(_ask("-q", "-x"))


def read_processes() -> tuple[ProcessMemory, ...]:
    return parse_processes(
        _ask("--query-compute-apps=gpu_uuid,pid,used_memory", "--format=csv,noheader,nounits")
    )


def parse_gpus(text: str) -> tuple[Gpu, ...]:
    """The XML of `nvidia-smi -q -x`."""
    root = ElementTree.fromstring(text)
    driver = root.findtext("driver_version", "")
    return tuple(
        Gpu(
            uuid=gpu.findtext("uuid", ""),
            minor=_number(gpu.findtext("minor_number", ""), index),
            total_mib=_mib(gpu.findtext("fb_memory_usage/total", "")),
            used_mib=_mib(gpu.findtext("fb_memory_usage/used", "")),
            name=gpu.findtext("product_name", ""),
            driver=driver,
        )
        for index, gpu in enumerate(root.iter("gpu"))
    )


def parse_processes(text: str) -> tuple[ProcessMemory, ...]:
    """Lines `GPU-uuid, pid, MiB`; a process whose memory the driver does not tell is left out."""
    rows = ([part.strip() for part in line.split(",")] for line in text.splitlines())
    return tuple(
        ProcessMemory(uuid=row[0], pid=int(row[1]), mib=int(row[2]))
        for row in rows
        if len(row) == 3 and row[1].isdigit() and row[2].isdigit()
    )


def mib_by_gpu(processes: Iterable[ProcessMemory], pids: Iterable[int]) -> dict[str, int]:
    """What these processes hold together, by GPU."""
    wanted = set(pids)
    found: dict[str, int] = {}
    for process in processes:
        if process.pid in wanted:
            found[process.uuid] = found.get(process.uuid, 0) + process.mib
    return found


def _number(text: str, otherwise: int) -> int:
    """Virtual machines do not always tell the minor number; then the driver's order is the best guess."""
    return int(text) if text.isdigit() else otherwise


def _mib(text: str) -> int:
    number, _, unit = text.partition(" ")
    if unit != "MiB" or not number.isdigit():
        raise ValueError(f"nvidia-smi says {text!r} where a number of MiB belongs")
    return int(number)


def _ask(*arguments: str) -> str:
    return subprocess.run(
        ["nvidia-smi", *arguments], capture_output=True, text=True, timeout=60, check=True
    ).stdout
