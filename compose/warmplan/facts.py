"""What the plan needs of a model's config.json.

In: the object of config.json, or a lock entry, which uses the same names where both have them. Out:
`ModelFacts`. It refuses to know what the numbers lead to: that is the matter of `architecture` and `kv`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from warmplan.document import Json
from warmplan.errors import Problem


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """Counts and sizes of a model, not bytes; None where the file says nothing.

    `window_layers` of the layers keep the last `sliding_window` tokens only; None with a window: not known.
    `moe_layers` have experts. `shared_intermediate_size` is all shared experts of a layer together.
    `weight_block` is the edge of the tile that has one scale (fp8); `draft_layers` are in the checkpoint and
    not loaded for serving.
    """

    architecture: str | None = None
    dtype: str | None = None
    quant_method: str | None = None
    weight_block: int | None = None
    hidden_size: int | None = None
    intermediate_size: int | None = None
    vocab_size: int | None = None
    tie_word_embeddings: bool | None = None
    attention_bias: bool | None = None
    mlp_bias: bool | None = None
    num_hidden_layers: int | None = None
    num_attention_heads: int | None = None
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    max_position_embeddings: int | None = None
    rope_type: str | None = None
    sliding_window: int | None = None
    window_layers: int | None = None
    num_experts: int | None = None
    moe_layers: int | None = None
    moe_intermediate_size: int | None = None
    shared_intermediate_size: int | None = None
    router_bias: bool | None = None
    kv_lora_rank: int | None = None
    q_lora_rank: int | None = None
    qk_nope_head_dim: int | None = None
    qk_rope_head_dim: int | None = None
    v_head_dim: int | None = None
    index_topk: int | None = None
    draft_layers: int | None = None


NO_FACTS: Final = ModelFacts()


class Fields:
    """Reads fields of one JSON object and collects what is wrong."""

    def __init__(self, content: Mapping[str, Json], problems: list[Problem], file: str) -> None:
        self.content = content
        self.problems = problems
        self.file = file

    def missing(self, key: str) -> str:
        if self.content.get(key) is None:
            self.problems.append(Problem(key=key, problem="is missing", file=self.file))
        return ""

    def text(
        self, key: str, *, pattern: re.Pattern[str] | None = None, one_of: tuple[str, ...] = ()
    ) -> str | None:
        value = self.content.get(key)
        if value is None:
            return None
        fits = isinstance(value, str) and (pattern is None or pattern.fullmatch(value) is not None)
        if not fits or (one_of and value not in one_of):
            self.problems.append(Problem(key=key, problem=f"cannot be {value!r}", file=self.file))
            return None
        return str(value)

    def integer(self, key: str) -> int | None:
        value = self.content.get(key)
        if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
            return value
        self.problems.append(
            Problem(key=key, problem=f"must be a whole number, not {value!r}", file=self.file)
        )
        return None

    def boolean(self, key: str) -> bool | None:
        value = self.content.get(key)
        if value is None or isinstance(value, bool):
            return value
        problem = f"must be true or false, not {value!r}"
        self.problems.append(Problem(key=key, problem=problem, file=self.file))
        return None

    def first_integer(self, *keys: str) -> int | None:
        """The value of the first of these keys that is there."""
        return next((self.integer(key) for key in keys if self.content.get(key) is not None), None)


def read_facts(config: Fields) -> ModelFacts:
    """The facts of a config.json or of a lock entry; what is wrong is added to `config.problems`."""
    content = config.content
    architectures = content.get("architectures")
    first = architectures[0] if isinstance(architectures, list) and architectures else None
    dtype = content.get("dtype") or content.get("torch_dtype")
    quantization = content.get("quantization_config")
    method = quantization.get("quant_method") if isinstance(quantization, dict) else None
    window = _sliding_window(config)
    return ModelFacts(
        architecture=config.text("architecture") or (first if isinstance(first, str) else None),
        dtype=dtype if isinstance(dtype, str) else None,
        quant_method=config.text("quant_method") or (method if isinstance(method, str) else None),
        weight_block=config.integer("weight_block") or _weight_block(quantization),
        hidden_size=config.integer("hidden_size"),
        intermediate_size=config.integer("intermediate_size"),
        vocab_size=config.integer("vocab_size"),
        tie_word_embeddings=config.boolean("tie_word_embeddings"),
        attention_bias=config.boolean("attention_bias"),
        mlp_bias=config.boolean("mlp_bias"),
        num_hidden_layers=config.integer("num_hidden_layers"),
        num_attention_heads=config.integer("num_attention_heads"),
        num_key_value_heads=config.integer("num_key_value_heads"),
        head_dim=config.integer("head_dim"),
        max_position_embeddings=config.integer("max_position_embeddings"),
        rope_type=config.text("rope_type") or _rope_type(content),
        sliding_window=window,
        window_layers=None if window is None else _window_layers(config),
        num_experts=config.first_integer("num_experts", "num_local_experts", "n_routed_experts"),
        moe_layers=_moe_layers(config),
        moe_intermediate_size=config.integer("moe_intermediate_size"),
        shared_intermediate_size=_shared_intermediate_size(config),
        router_bias=True if content.get("topk_method") == "noaux_tc" else config.boolean("router_bias"),
        kv_lora_rank=config.integer("kv_lora_rank"),
        q_lora_rank=config.integer("q_lora_rank"),
        qk_nope_head_dim=config.integer("qk_nope_head_dim"),
        qk_rope_head_dim=config.integer("qk_rope_head_dim"),
        v_head_dim=config.integer("v_head_dim"),
        index_topk=config.integer("index_topk"),
        draft_layers=config.first_integer("draft_layers", "num_nextn_predict_layers"),
    )


def _weight_block(quantization: Json) -> int | None:
    """The edge of a square tile with one scale; a tile that is not square is not known here."""
    block = quantization.get("weight_block_size") if isinstance(quantization, dict) else None
    if isinstance(block, list) and len(block) == 2 and block[0] == block[1] and isinstance(block[0], int):
        return block[0]
    return None


def _rope_type(content: Mapping[str, Json]) -> str | None:
    """How positions are stretched: transformers 5 writes `rope_parameters`, older ones `rope_scaling`."""
    for name in ("rope_parameters", "rope_scaling"):
        rope = content.get(name)
        kind = (rope.get("rope_type") or rope.get("type")) if isinstance(rope, dict) else None
        if isinstance(kind, str):
            return kind
    return None


def _sliding_window(config: Fields) -> int | None:
    """The window in use: Qwen2 and Qwen3 may carry a size together with `use_sliding_window: false`."""
    return None if config.content.get("use_sliding_window") is False else config.integer("sliding_window")


def _window_layers(config: Fields) -> int | None:
    """How many layers keep only the window.

    `layer_types` says it layer by layer; `sliding_window_pattern: n` means that every n-th layer is full, and
    Gemma 2 without either alternates. Qwen2's `max_window_layers` is not followed: None. With nothing said
    every layer has the window (Mistral 7B v0.1, Phi-3).
    """
    known = config.integer("window_layers")
    if known is not None:
        return known
    types = config.content.get("layer_types")
    if isinstance(types, list):
        return types.count("sliding_attention")
    layers = config.integer("num_hidden_layers")
    pattern = config.integer("sliding_window_pattern")
    if pattern is None and config.content.get("model_type") == "gemma2":
        pattern = 2
    if config.content.get("use_sliding_window") is True or layers is None:
        return None
    return layers - layers // pattern if pattern else layers


def _moe_layers(config: Fields) -> int | None:
    """How many layers have experts; the others are dense."""
    known = config.integer("moe_layers")
    layers = config.integer("num_hidden_layers")
    if known is not None or layers is None:
        return known
    if config.first_integer("num_experts", "num_local_experts", "n_routed_experts") is None:
        return None
    dense = config.content.get("mlp_only_layers")
    step = config.first_integer("decoder_sparse_step", "moe_layer_freq") or 1
    first = config.integer("first_k_dense_replace") or 0
    alone = set(dense) if isinstance(dense, list) else set()
    # Qwen counts layers from 1, DeepSeek from 0; with a step of 1, the only one in use, it is the same.
    return sum(
        1 for layer in range(layers) if layer >= first and layer not in alone and (layer + 1) % step == 0
    )


def _shared_intermediate_size(config: Fields) -> int | None:
    known = config.first_integer("shared_intermediate_size", "shared_expert_intermediate_size")
    count, size = config.integer("n_shared_experts"), config.integer("moe_intermediate_size")
    return known if known is not None or not count or size is None else count * size
