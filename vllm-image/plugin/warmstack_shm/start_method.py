"""How the engine's own process begins.

In: what VLLM_WORKER_MULTIPROC_METHOD says when vLLM makes its configuration. Out: the same, afterwards.
Refuses to know: weights.

vLLM 0.32 sets the variable to `spawn` on the CPU whatever was asked for, so that the engine's process imports
everything once more: three quarters of a start. A process that is forked needs none of that; what the CPU
platform fears is OpenMP's threads, which do not come along, and those are ended first.
"""

import os
from typing import Any

from vllm.platforms.cpu import CpuPlatform

from warmstack_shared.openmp import end_openmp_threads

VARIABLE = "VLLM_WORKER_MULTIPROC_METHOD"
_stock_check_and_update_config = CpuPlatform.check_and_update_config.__func__  # type: ignore[attr-defined]


def keep_start_method() -> None:
    """Replace vLLM's `check_and_update_config` (0.32). Where nobody asks, `vllm serve` takes spawn."""
    setattr(CpuPlatform, "check_and_update_config", classmethod(_check_and_update_config))  # noqa: B010
    os.register_at_fork(before=end_openmp_threads)


def _check_and_update_config(cls: Any, vllm_config: Any) -> None:
    asked = os.environ.get(VARIABLE)
    _stock_check_and_update_config(cls, vllm_config)
    if asked is not None:
        os.environ[VARIABLE] = asked
