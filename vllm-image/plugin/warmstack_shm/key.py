"""The layout of the weights as a part of vLLM's key.

In: a checkpoint folder. Out: vLLM's own hash of it, joined with the layout: packed weights are wrong for a
plain kernel. Refuses to know: the content of the weights. vLLM hashes safetensors headers only; content
reaches the key as `--revision <digest>`, which both sides are started with.
"""

from collections.abc import Callable

from vllm.model_executor.model_loader.weight_cache import protocol

from warmstack_shm.linear import linear_layout

_stock_hash_checkpoint: Callable[[str], str | None] = protocol.hash_checkpoint


def hash_checkpoint(model: str) -> str | None:
    """Stands for vLLM's `hash_checkpoint` (0.32); None, like there, when no local safetensors files are
    found.
    """
    headers = _stock_hash_checkpoint(model)
    return None if headers is None else f"{headers}-{linear_layout()}"
