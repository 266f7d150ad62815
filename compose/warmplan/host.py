"""Facts of the machine that is to run the stack, as told by whoever asked it.

In: numbers from outside. Out: frozen facts for the checks. They never shape the generated file: a plan made
on a laptop for a server is the plan that the server gets.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class GpuFacts:
    """One GPU: its UUID (`GPU-…`), memory in bytes, and architecture (`sm90`)."""

    uuid: str
    total_bytes: int
    free_bytes: int
    architecture: str


@dataclass(frozen=True, kw_only=True)
class HostFacts:
    """The machine: CPU cores, memory in bytes, GPUs in the order of the driver."""

    cores: int
    memory_bytes: int
    gpus: tuple[GpuFacts, ...] = ()
