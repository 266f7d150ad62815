"""What the CPU platform answers where vLLM's weight cache asks about a GPU.

In: nothing but the process's distributed group. Out: a device id, the platform gate, `torch.accelerator`
answers. Refuses to know: weights.
"""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from vllm.distributed import get_world_group

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def check_ipc_platform_support() -> None:
    """Stands for vLLM's platform gate, which refuses everything but CUDA and ROCm: here the CPU can share."""


def get_current_device_uuid() -> str:
    """One "device" per local rank and boot: a socket file left by an earlier boot belongs to no living
    daemon.
    """
    return f"cpu-{_BOOT_ID.read_text().strip()}-{get_world_group().local_rank}"


@contextlib.contextmanager
def accelerator_answers(held_bytes: Callable[[], int]) -> Iterator[None]:
    """Within it `torch.accelerator` answers for the CPU; without an accelerator torch raises on each of
    these.
    """
    answers: dict[str, Callable[..., Any]] = {
        "set_device_index": lambda *_: None,
        "current_device_index": lambda: 0,
        "empty_cache": lambda: None,
        "memory_allocated": lambda *_: held_bytes(),
        "memory_reserved": lambda *_: held_bytes(),
        "get_memory_info": lambda *_: (0, 0),
    }
    stock = {name: getattr(torch.accelerator, name) for name in answers if hasattr(torch.accelerator, name)}
    for name, answer in answers.items():
        setattr(torch.accelerator, name, answer)
    try:
        yield
    finally:
        for name, value in stock.items():
            setattr(torch.accelerator, name, value)
