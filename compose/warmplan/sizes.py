"""What one model takes on one rank: its weights, and its KV cache per token.

In: a spec and the resolved model. Out: `Weights` and `KvLayout`, computed from the shapes, taken from the
safetensors headers, or given by hand; or None, with a refusal that asks for the two numbers. It does not know
the memory of any machine.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Final

from warmplan.architecture import list_tensors, table_bytes, weight_format
from warmplan.constants import (
    BATCHED_TOKENS,
    BATCHED_TOKENS_LARGE,
    BLOCK_TOKENS,
    GIB,
    LARGE_GPU_BYTES,
    LATENT_BLOCK_TOKENS,
    STEPS_IN_FLIGHT,
)
from warmplan.errors import Problem, UserError
from warmplan.facts import ModelFacts
from warmplan.kv import KvLayout, by_hand, plan_kv
from warmplan.lock import HEADERS, LockedModel
from warmplan.spec import Spec
from warmplan.weights import Format, Ranks, Tensor, check_heads, checkpoint_bytes, rank_bytes

# Ways of stretching positions after which `max_position_embeddings` still is the longest length.
_UNSTRETCHED: Final = frozenset({None, "default", "llama3"})
# Headers and shapes differ by draft layers or odd extras; beyond this the shapes are not the model's.
_AGREEMENT: Final = 0.01
_VALUE_BYTES: Final = {"float32": 4, "float16": 2, "bfloat16": 2, "half": 2, "float": 4}
_KV_VALUE_BYTES: Final = {"float16": 2, "bfloat16": 2, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1}
_NUMBER: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kKmM]?)")
_SUFFIXES: Final = {"": 1, "k": 1000, "K": 1024, "m": 1000**2, "M": 1024**2}
BY_HAND: Final = (
    "give model.weight_gib and model.kv_bytes_per_token, of one rank; a start of `vllm serve` logs both as "
    "`Model loading took` and, by division, `GPU KV cache size`"
)


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Bytes: of the whole checkpoint, and of what one rank holds; None while nobody has told.

    `tables` is what vLLM makes and keeps beside them on every rank.
    """

    whole: int | None
    rank: int | None
    source: str | None
    tables: int = 0


def measure_weights(spec: Spec, model: LockedModel | None) -> Weights:
    """The weights of one rank.

    Errors: `UserError` (exit code 2) when vLLM cannot split the model so.
    """
    count = spec.tensor
    whole = model.weight_bytes if model is not None else None
    if model is not None and model.facts.num_attention_heads:
        check_heads(model.facts.num_attention_heads, count)
    if spec.model.weight_gib is not None:
        told = int(spec.model.weight_gib * GIB)
        return Weights(whole=whole, rank=told, source="model.weight_gib")
    if model is None:
        return Weights(whole=None, rank=None, source=None)
    facts = model.facts
    tensors = list_tensors(facts)
    if tensors is None:
        return _even_share(model, None, count)
    shapes = checkpoint_bytes(tensors, _stored_format(facts))
    if not _agree(tensors, _stored_format(facts), whole):
        return _even_share(model, shapes, count)
    ranks = Ranks(count=count, expert_parallel=_switch(spec, "enable-expert-parallel"))
    agree = "; the safetensors headers agree" if model.weight_bytes_from == HEADERS else ""
    return Weights(
        whole=whole or shapes,
        rank=_served_bytes(spec, facts, tensors, ranks),
        source=f"shapes in config.json{agree}",
        tables=table_bytes(facts, _served_value_bytes(spec)),
    )


def measure_kv(spec: Spec, facts: ModelFacts) -> KvLayout | None:
    """The KV cache of one rank per token, or None when it is not known."""
    usual = BLOCK_TOKENS[spec.platform] if facts.kv_lora_rank is None else LATENT_BLOCK_TOKENS
    block = _whole_number(spec, "block-size") or usual
    if spec.model.kv_bytes_per_token is not None:
        return by_hand(spec.model.kv_bytes_per_token, block=block)
    value_bytes = _kv_value_bytes(spec)
    if value_bytes is None:
        return None
    return plan_kv(
        facts,
        ranks=spec.tensor,
        value_bytes=value_bytes,
        block=block,
        in_flight=STEPS_IN_FLIGHT * batched_tokens(spec),
        windows=not _switch(spec, "disable-hybrid-kv-cache-manager"),
    )


def full_length(spec: Spec, facts: ModelFacts) -> int | None:
    """The longest request in tokens: as wished, else the model's own.

    Errors: `UserError` (exit code 2) when the wish is longer than the model was made for.
    """
    wish, own = spec.engine.max_model_len, facts.max_position_embeddings
    overridden = _argument(spec, "hf-overrides") is not None
    limit = None if overridden or facts.rope_type not in _UNSTRETCHED else own
    if wish and limit and wish > limit:
        problem = f"{wish} is more than the {limit} tokens the model was made for"
        raise UserError(Problem(key="engine.max_model_len", problem=problem, hint=f"use {limit} or less"))
    return wish or own


def refuse_unknown(spec: Spec, model: LockedModel | None, kv: KvLayout | None) -> None:
    """Stop when a wish cannot be turned into bytes, or a GPU plan would rest on nothing."""
    if kv is not None:
        return
    for key, wish in (
        ("tokens", spec.engine.kv_cache_tokens),
        ("concurrency", spec.engine.kv_cache_concurrency),
    ):
        if wish is not None:
            text = "the bytes of one token are not known for this model"
            hint = "give engine.kv_cache.gib, or model.kv_bytes_per_token"
            raise UserError(Problem(key=f"engine.kv_cache.{key}", problem=text, hint=hint))
    if spec.platform == "cuda" and model is not None:
        name = model.facts.architecture or "a model without `architectures`"
        text = f"the plan does not know the KV cache of {name}"
        raise UserError(Problem(key="model.name", problem=text, hint=BY_HAND))


def _even_share(model: LockedModel, shapes: int | None, count: int) -> Weights:
    """The part of a rank when the shapes are unknown or are not those of the checkpoint."""
    whole, source = model.weight_bytes, model.weight_bytes_from or HEADERS
    if whole is None:
        return Weights(whole=None, rank=None, source=None)
    if shapes is not None:
        source = f"{source}; config.json stands for {shapes} bytes, so it was not used"
    share = ", an equal share" if count > 1 else ""
    return Weights(whole=whole, rank=math.ceil(whole / count), source=f"{source}{share}")


def _agree(tensors: tuple[Tensor, ...], form: Format, whole: int | None) -> bool:
    """Whether the headers tell of these tensors.

    Some checkpoints (Qwen3-0.6B) store the output matrix although it is the embedding; it is not loaded.
    """
    shapes = checkpoint_bytes(tensors, form)
    twice = checkpoint_bytes((tensor for tensor in tensors if tensor.name == "embedding"), form)
    return whole is None or any(abs(one - whole) <= _AGREEMENT * whole for one in (shapes, shapes + twice))


def _served_bytes(spec: Spec, facts: ModelFacts, tensors: tuple[Tensor, ...], ranks: Ranks) -> int:
    """What a rank holds in the number format of the wish, quantised on loading when that is wished."""
    if spec.model.quantization == "fp8" and facts.quant_method is None:
        facts = replace(facts, quant_method="fp8", weight_block=None)
        tensors = list_tensors(facts) or tensors
    form = weight_format(facts, _served_value_bytes(spec))
    return rank_bytes(tensors, form, ranks)


def _stored_format(facts: ModelFacts) -> Format:
    return weight_format(facts, _VALUE_BYTES.get(facts.dtype or "bfloat16", 2))


def _served_value_bytes(spec: Spec) -> int:
    """vLLM's `auto` serves float32 checkpoints in 16 bits."""
    return 4 if spec.model.dtype == "float32" else 2


def _kv_value_bytes(spec: Spec) -> int | None:
    kind = str(_argument(spec, "kv-cache-dtype") or "auto")
    return _served_value_bytes(spec) if kind == "auto" else _KV_VALUE_BYTES.get(kind)


def batched_tokens(spec: Spec) -> int:
    """Tokens that one step of an engine computes at most."""
    given = _whole_number(spec, "max-num-batched-tokens")
    if given is not None:
        return given
    if spec.platform == "cpu":
        return BATCHED_TOKENS * spec.tensor
    large = (spec.gpu.memory_gib or 0) * GIB >= LARGE_GPU_BYTES
    return BATCHED_TOKENS_LARGE if large else BATCHED_TOKENS


def _whole_number(spec: Spec, name: str) -> int | None:
    """A flag's number; vLLM reads `8k` as 8000 and `8K` as 8192."""
    found = _NUMBER.fullmatch(str(_argument(spec, name)))
    return None if found is None else int(float(found[1]) * _SUFFIXES[found[2]])


def _argument(spec: Spec, name: str) -> object:
    return dict(spec.engine.arguments).get(name)


def _switch(spec: Spec, name: str) -> bool:
    return _argument(spec, name) is True
