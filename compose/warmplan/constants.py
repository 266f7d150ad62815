"""Sizes that no formula gives, each with where it comes from.

Data only; `budget` adds them up, `reference` shows them in docs/environment.md. To correct one, measure it
and write version and date beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MIB: Final = 1024**2
GIB: Final = 1024**3


@dataclass(frozen=True, kw_only=True)
class Constant:
    """Bytes of one thing. `source` begins with `measured` or `chosen, not measured`."""

    name: str
    bytes: int
    source: str


CUDA_CONTEXT: Final = Constant(
    name="CUDA context of one process on one GPU",
    bytes=610 * MIB,
    source="measured: H200, driver 580, vLLM 0.33.0, November 2026 (16 246 MiB for 15.27 GiB of weights)",
)
_MEASURED_AGAIN: Final = "measured: H200, driver 580, vLLM 0.33.0, docs/measurements/h200-2026-11-30"
CUDA_GRAPHS: Final = Constant(
    name="CUDA graphs of one engine",
    bytes=614 * MIB,
    source=f"{_MEASURED_AGAIN} (451 MiB with a 0.6B shape, 717 MiB with 8B, 594 MiB with half of 8B)",
)
CUDA_WORKSPACES: Final = Constant(
    name="workspaces of one engine, beside activations and logits",
    bytes=160 * MIB,
    source=f"{_MEASURED_AGAIN} (what is left of three engines)",
)
CUDA_ACTIVATIONS: Final = Constant(
    name="activations and workspaces of one engine whose config.json does not tell the shapes",
    bytes=3 * GIB,
    source="chosen, not measured",
)
CUDA_LINKS: Final = Constant(
    name="buffers between GPUs, of one engine's rank (more than one rank)",
    bytes=806 * MIB,
    source=f"{_MEASURED_AGAIN} (8B shape on two GPUs, NVLink multicast off)",
)
CPU_WEIGHT_CACHE: Final = Constant(
    name="weight-cache process on the CPU",
    bytes=1536 * MIB,
    source="measured: container with SmolLM2-135M, its weights included, vLLM 0.32.0, 2 cores, November 2026",
)
CPU_ENGINE: Final = Constant(
    name="engine process on the CPU",
    bytes=1301 * MIB,
    source="measured: container with SmolLM2-135M, its weights included, vLLM 0.32.0, 2 cores, November 2026",
)
SHM_SLACK: Final = Constant(
    name="/dev/shm beside weights: file headers, alignment, message queues",
    bytes=256 * MIB,
    source="chosen, not measured: a limit, nothing is reserved",
)
SHM_PER_RANK: Final = Constant(
    name="/dev/shm of one rank on CUDA: NCCL and message queues",
    bytes=2 * GIB,
    source="chosen, not measured: a limit, nothing is reserved",
)
CONSTANTS: Final = (
    CUDA_CONTEXT,
    CUDA_GRAPHS,
    CUDA_WORKSPACES,
    CUDA_ACTIVATIONS,
    CUDA_LINKS,
    CPU_WEIGHT_CACHE,
    CPU_ENGINE,
    SHM_SLACK,
    SHM_PER_RANK,
)
# A reload after a crash fills a second copy while engines still map the first.
COPIES_IN_SHM: Final = 2
# Tokens of one block, vLLM's default per platform; sizes in tokens round up to it.
BLOCK_TOKENS: Final = {"cpu": 128, "cuda": 16}
# The largest that a backend for latent attention chooses by itself (v1/attention/backends/mla).
LATENT_BLOCK_TOKENS: Final = 128
# Tokens that one step computes at most, vLLM 0.33 (engine/arg_utils.py): for `vllm serve` on a GPU with 70
# GiB and more, on a smaller one, and on the CPU for each rank.
BATCHED_TOKENS_LARGE: Final = 8192
BATCHED_TOKENS: Final = 2048
LARGE_GPU_BYTES: Final = 70 * GIB
# Sequences that one step computes at most, from the same place.
SEQUENCES_LARGE: Final = 1024
SEQUENCES: Final = 256
# Steps that may be under way at once (config/vllm.py: asynchronous scheduling).
STEPS_IN_FLIGHT: Final = 2


def gib(count: int) -> str:
    """Bytes as GiB for people, two digits."""
    return f"{count / GIB:.2f} GiB"
