"""vLLM's `ipc_cache` loader on the CPU platform.

In: what vLLM gives a loader. Out: the model, its tensors mapped from the weight cache, and the `mapped` mark
on stdout. Refuses to know: who reads the mark. Waiting, key check and fallback are vLLM's.
"""

import json
import os
import time
from typing import Any

import torch
from vllm.model_executor.model_loader.weight_cache import ipc_loader

from warmstack_shm.device import accelerator_answers
from warmstack_shm.linear import sharable_linear


class ShmModelLoader(ipc_loader.IpcModelLoader):
    def load_model(self, vllm_config: Any, model_config: Any, prefix: str = "") -> torch.nn.Module:
        with accelerator_answers(held_bytes=lambda: 0), sharable_linear():
            model: torch.nn.Module = super().load_model(vllm_config, model_config, prefix)
        return model

    def _build_model(self, vllm_config: Any, model_config: Any, prefix: str, state: Any) -> torch.nn.Module:
        # vLLM calls it once the weight cache has answered, so waiting for the weight cache is not in the
        # time.
        started = time.perf_counter()
        model: torch.nn.Module = super()._build_model(vllm_config, model_config, prefix, state)
        seconds = time.perf_counter() - started
        sizes = [entry.mapped_bytes for entry in state.entries.values()]
        _emit_mapped(bytes=sum(sizes), tensors=sum(1 for size in sizes if size), seconds=round(seconds, 4))
        return model


def _emit_mapped(**facts: float) -> None:
    mark = json.dumps({"event": "mapped", "t": round(time.time(), 3), **facts})
    # Not print(): vLLM wraps sys.stdout of its engine processes and puts a prefix before each line.
    os.write(1, f"warmstack: {mark}\n".encode())
