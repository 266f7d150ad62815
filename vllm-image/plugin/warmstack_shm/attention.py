"""Which of vLLM's CPU attention kernels is used.

In: what vLLM asks. Out: the name of a kernel. Refuses to know: weights.

vLLM 0.32 chooses its AMX kernel where the processor has AMX. Measured on a Xeon with AMX (2 cores, a virtual
machine), SmolLM2-135M in bf16, stock `vllm serve` from disk: a prompt of 37 tokens is answered with unrelated
text, prompts of a few tokens rightly. With the AVX512 kernel ("vec"), and in float32, and by transformers,
the same prompt is answered rightly. Until that is mended upstream, "vec" stands in for "amx".
"""

from typing import Any

from vllm.v1.attention.backends import cpu_attn

_stock_get_attn_isa = cpu_attn._get_attn_isa


def get_attn_isa(*args: Any, **kwargs: Any) -> str:
    """Stands for vLLM's `_get_attn_isa` (0.32)."""
    isa: str = _stock_get_attn_isa(*args, **kwargs)
    return "vec" if isa == "amx" else isa
