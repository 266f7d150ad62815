"""What one engine needs on a GPU to compute: activations of its largest step, logits, workspaces.

In: a spec and the facts of a model. Out: bytes of one rank, and where they come from. The terms were found by
measuring three engines (docs/measurements/h200-2026-11-30); a model without these facts gets a chosen size.
"""

from __future__ import annotations

from warmplan.constants import (
    CUDA_ACTIVATIONS,
    CUDA_WORKSPACES,
    GIB,
    LARGE_GPU_BYTES,
    SEQUENCES,
    SEQUENCES_LARGE,
)
from warmplan.facts import ModelFacts
from warmplan.sizes import batched_tokens
from warmplan.spec import Spec

_VALUE_BYTES = 2
_LOGIT_BYTES = 4
_GATE_AND_UP = 2
# Without a compiled graph the sampler's copies of the logits do not share memory: measured, 64 against 1024.
_EAGER_LOGITS = 2.7


def activation_bytes(spec: Spec, facts: ModelFacts) -> tuple[int, str]:
    """Bytes of one rank, and their source.

    The widest layer of the longest step (gate and up of the MLP, and what flows between layers), and a row of
    float32 logits for each sequence, which each rank has whole.
    """
    widest = facts.intermediate_size or facts.moe_intermediate_size
    if facts.hidden_size is None or widest is None or facts.vocab_size is None:
        return CUDA_ACTIVATIONS.bytes, CUDA_ACTIVATIONS.source
    values = _GATE_AND_UP * widest // spec.tensor + facts.hidden_size
    logits = facts.vocab_size * _LOGIT_BYTES * _sequences(spec)
    if is_eager(spec):
        logits = int(logits * _EAGER_LOGITS)
    step = batched_tokens(spec) * values * _VALUE_BYTES
    terms = f"{batched_tokens(spec)} tokens a step, {_sequences(spec)} sequences"
    return CUDA_WORKSPACES.bytes + step + logits, f"{terms}; the formula fits what was measured on an H200"


def is_eager(spec: Spec) -> bool:
    """No CUDA graphs and nothing compiled."""
    return dict(spec.engine.arguments).get("enforce-eager") is True


def _sequences(spec: Spec) -> int:
    """Sequences that one step computes at most."""
    if spec.engine.max_num_seqs is not None:
        return spec.engine.max_num_seqs
    large = (spec.gpu.memory_gib or 0) * GIB >= LARGE_GPU_BYTES
    return SEQUENCES_LARGE if large else SEQUENCES
