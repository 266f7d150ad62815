"""A CPU linear kernel whose processed weight is an ordinary tensor.

vLLM's stock kernels keep their packed weights inside the process (oneDNN handles, closures) and leave an
empty parameter behind: nothing is left that could be shared. In: a layer. Out: the layer with a weight that
can be shared, in one of two layouts:

- `packed`: VNNI-packed by vLLM's AVX512-bf16 kernels: the speed of the stock kernels;
- `plain`: as in the checkpoint: runs on any CPU, about half the speed in decoding.

Both round other than the stock kernels do on a processor with AMX (measured: greedy texts part after some
words); on one without it `plain` was equal to stock bit by bit. Mapped and loaded from disk are equal within
one layout.

Refuses to know: who loads, daemon or engine; vLLM says whether the weights were processed before.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import torch
import vllm.model_executor.layers.utils as layer_utils
from vllm import _custom_ops as ops
from vllm.model_executor.utils import is_weights_pre_processed

LAYOUT_VARIABLE = "WARMSTACK_LINEAR_LAYOUT"
LAYOUTS = ("packed", "plain")

_utils: Any = layer_utils  # its functions are replaced below
_stock_dispatch = _utils.dispatch_cpu_unquantized_gemm


def linear_layout() -> str:
    """`packed` where this CPU has the kernel, else `plain`; WARMSTACK_LINEAR_LAYOUT overrides."""
    wish = os.environ.get(LAYOUT_VARIABLE)
    if wish is not None and wish not in LAYOUTS:
        raise ValueError(f"{LAYOUT_VARIABLE} is {wish!r}, expected one of {', '.join(LAYOUTS)}")
    can_pack = torch.cpu._is_avx512_bf16_supported() and hasattr(torch.ops._C, "convert_weight_packed")
    if wish == "packed" and not can_pack:
        raise ValueError(f"{LAYOUT_VARIABLE} is packed, but this CPU has no AVX512-bf16")
    return wish or ("packed" if can_pack else "plain")


@contextlib.contextmanager
def sharable_linear() -> Iterator[None]:
    """Within it, vLLM gives layers the kernels of this module."""
    _utils.dispatch_cpu_unquantized_gemm = _dispatch
    try:
        yield
    finally:
        _utils.dispatch_cpu_unquantized_gemm = _stock_dispatch


def _dispatch(layer: Any, remove_weight: bool) -> None:
    """Stands for vLLM's `dispatch_cpu_unquantized_gemm` (0.32)."""
    weight = layer.weight
    if weight.is_meta or weight.ndim != 2:
        _stock_dispatch(layer, remove_weight)
    # remove_weight is False where others use the weight too (the embedding of a tied lm_head): it must stay
    # as it is.
    elif remove_weight and _can_pack(weight):
        _use_packed(layer)
    else:
        layer.cpu_linear = torch.nn.functional.linear


def _can_pack(weight: torch.Tensor) -> bool:
    # Other shapes make the kernel return another dtype or shape, which the daemon could not describe.
    rows, columns = weight.shape
    return (
        linear_layout() == "packed"
        and weight.dtype == torch.bfloat16
        and rows % 16 == 0
        and columns % 32 == 0
    )


def _use_packed(layer: Any) -> None:
    rows = layer.weight.shape[0]
    if not is_weights_pre_processed():
        packed = torch.ops._C.convert_weight_packed(layer.weight.data)
        if packed.shape != layer.weight.shape or packed.dtype != layer.weight.dtype:
            raise RuntimeError(f"convert_weight_packed made {packed.dtype}{tuple(packed.shape)} of a weight")
        layer.weight = torch.nn.Parameter(packed, requires_grad=False)
        if getattr(layer, "bias", None) is not None:
            layer.bias.data = layer.bias.to(torch.float32)  # what the kernel takes
    layer.cpu_linear = lambda x, weight, bias: ops.weight_packed_linear_cpu(x, weight, rows, bias)
