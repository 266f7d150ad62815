"""Which tensors a model has, from the facts of its config.json.

In: `ModelFacts`. Out: tensors by shape with vLLM's way of splitting each, or None for an architecture that is
not in the table: nothing is guessed. To know another decoder of these kinds, add a line to `FAMILIES`.

Read in vllm/model_executor/models/ of 0.33 and compared with the safetensors totals of published checkpoints
(tests/data/models).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from warmplan.facts import ModelFacts
from warmplan.weights import Format, Split, Stored, Tensor


@dataclass(frozen=True, kw_only=True)
class Family:
    """How the decoders of one architecture differ from a plain Llama.

    `query_bias` None: as `attention_bias` says, and then the output projection has one too. `head_norms`:
    query and key have a norm of one head. `tied`: the embedding is the output matrix unless the file denies
    it.
    """

    query_bias: bool | None = None
    layer_norms: int = 2
    head_norms: bool = False
    tied: bool = False
    shared_gate: bool = False
    expert_bias: bool = False
    sinks: bool = False
    rotary_tables: int = 1


FAMILIES: Final[dict[str, Family]] = {
    "DeepseekV2ForCausalLM": Family(query_bias=False),
    "DeepseekV3ForCausalLM": Family(query_bias=False),
    "Gemma2ForCausalLM": Family(layer_norms=4, tied=True),
    "Gemma3ForCausalLM": Family(layer_norms=4, tied=True, head_norms=True, rotary_tables=2),
    "GemmaForCausalLM": Family(query_bias=False, tied=True),
    "GptOssForCausalLM": Family(expert_bias=True, sinks=True),
    "LlamaForCausalLM": Family(),
    "MistralForCausalLM": Family(query_bias=False),
    "MixtralForCausalLM": Family(query_bias=False),
    "Phi3ForCausalLM": Family(query_bias=False),
    "Qwen2ForCausalLM": Family(query_bias=True),
    "Qwen2MoeForCausalLM": Family(query_bias=True, shared_gate=True),
    "Qwen3ForCausalLM": Family(head_norms=True),
    "Qwen3MoeForCausalLM": Family(head_norms=True),
}


def find_family(facts: ModelFacts) -> Family | None:
    """The family of an architecture that the tables know."""
    return FAMILIES.get(facts.architecture or "")


def head_size(facts: ModelFacts) -> int | None:
    """Values of one attention head."""
    if facts.head_dim is not None:
        return facts.head_dim
    if facts.hidden_size is None or not facts.num_attention_heads:
        return None
    return facts.hidden_size // facts.num_attention_heads


def list_tensors(facts: ModelFacts) -> tuple[Tensor, ...] | None:
    """Every tensor of the model, or None when the architecture or a size is not known."""
    family = find_family(facts)
    if family is None or facts.index_topk is not None:
        return None
    shape = _Shape.of(facts)
    if shape is None:
        return None
    tensors = (*_ends(facts, family, shape), *_layers(facts, family, shape))
    return None if any(tensor is None for tensor in tensors) else tuple(t for t in tensors if t is not None)


def table_bytes(facts: ModelFacts, value_bytes: int) -> int:
    """Bytes of what vLLM makes beside the weights and keeps with them, whole on every rank.

    The sines and cosines of every position, one table for all layers (two where windows have their own), in
    32 bits for latent attention and gpt-oss; and four 32-bit scales for a layer's attention. 0 when the
    architecture is not known.
    """
    family, size = find_family(facts), head_size(facts)
    positions, layers = facts.max_position_embeddings, facts.num_hidden_layers
    latent = facts.kv_lora_rank is not None
    width = facts.qk_rope_head_dim if latent else size
    if family is None or positions is None or layers is None or width is None:
        return 0
    each = 4 if latent or family.sinks else value_bytes
    return family.rotary_tables * positions * width * each + layers * 4 * 4


def weight_format(facts: ModelFacts, value_bytes: int) -> Format:
    """How the values of this model are stored."""
    return Format(value_bytes=value_bytes, weight_block=facts.weight_block)


@dataclass(frozen=True, kw_only=True)
class _Shape:
    """Sizes without which nothing can be said."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head: int
    vocabulary: int
    moe_layers: int
    linear: Stored
    expert: Stored

    @classmethod
    def of(cls, facts: ModelFacts) -> _Shape | None:
        head, method = head_size(facts), facts.quant_method
        if method not in (None, "fp8", "mxfp4"):
            return None
        if head is None or facts.hidden_size is None or facts.vocab_size is None:
            return None
        if facts.num_hidden_layers is None or facts.num_attention_heads is None:
            return None
        linear = Stored.FP8 if method == "fp8" else Stored.PLAIN
        return cls(
            hidden=facts.hidden_size,
            layers=facts.num_hidden_layers,
            heads=facts.num_attention_heads,
            kv_heads=facts.num_key_value_heads or facts.num_attention_heads,
            head=head,
            vocabulary=facts.vocab_size,
            moe_layers=facts.moe_layers or 0,
            linear=linear,
            expert=Stored.FP4 if method == "mxfp4" else linear,
        )


_Tensors = Iterator[Tensor | None]


def _ends(facts: ModelFacts, family: Family, shape: _Shape) -> _Tensors:
    """Embedding, last norm, and the output matrix unless it is the embedding."""
    tied = family.tied if facts.tie_word_embeddings is None else facts.tie_word_embeddings
    for name in ("embedding",) if tied else ("embedding", "output"):
        yield Tensor(name=name, copies=1, units=shape.vocabulary, other=shape.hidden, split=Split.VOCABULARY)
    yield Tensor(name="last norm", copies=1, units=shape.hidden)


def _layers(facts: ModelFacts, family: Family, shape: _Shape) -> _Tensors:
    yield Tensor(name="norms", copies=shape.layers * family.layer_norms, units=shape.hidden)
    latent = facts.kv_lora_rank is not None
    yield from _latent_attention(facts, shape) if latent else _attention(facts, family, shape)
    dense = shape.layers - shape.moe_layers
    if dense:
        yield from _dense(facts, shape, dense)
    if shape.moe_layers:
        yield from _experts(facts, family, shape, shape.moe_layers)
    if facts.draft_layers:
        yield from _draft(facts, family, shape, facts.draft_layers)


def _attention(facts: ModelFacts, family: Family, shape: _Shape) -> _Tensors:
    """Query, key, value and output of plain, grouped and multi-query attention."""
    layers, head, hidden = shape.layers, shape.head, shape.hidden
    query = Tensor(
        name="query",
        copies=layers,
        units=shape.heads,
        unit=head,
        other=hidden,
        split=Split.HEADS,
        stored=shape.linear,
    )
    key = replace(query, name="key, value", copies=2 * layers, units=shape.kv_heads, split=Split.KV_HEADS)
    yield from (query, key, replace(query, name="attention output"))
    biased = bool(facts.attention_bias)
    if biased if family.query_bias is None else family.query_bias:
        yield replace(query, name="query bias", other=1, stored=Stored.PLAIN)
        yield replace(key, name="key, value bias", other=1, stored=Stored.PLAIN)
    # Qwen3's `attention_bias` is for query, key and value alone.
    if biased and family.query_bias is None and not family.head_norms:
        yield Tensor(name="attention output bias", copies=layers, units=hidden)
    if family.head_norms:
        yield Tensor(name="query and key norms", copies=2 * layers, units=head)
    if family.sinks:
        yield Tensor(name="sinks", copies=layers, units=shape.heads, split=Split.HEADS)


def _latent_attention(facts: ModelFacts, shape: _Shape) -> _Tensors:
    """DeepSeek's attention: keys and values of all heads come from one small vector."""
    rank, nope, rope = facts.kv_lora_rank, facts.qk_nope_head_dim, facts.qk_rope_head_dim
    value, low = facts.v_head_dim, facts.q_lora_rank
    if rank is None or nope is None or rope is None or value is None:
        yield None
        return
    layers, heads, hidden, form = shape.layers, shape.heads, shape.hidden, shape.linear
    if low:
        yield Tensor(name="query, down", copies=layers, units=low, other=hidden, stored=form)
        yield Tensor(name="query norm", copies=layers, units=low)
    yield Tensor(
        name="query",
        copies=layers,
        units=heads,
        unit=nope + rope,
        other=low or hidden,
        split=Split.HEADS,
        stored=form,
    )
    yield Tensor(name="latent", copies=layers, units=rank + rope, other=hidden, stored=form)
    yield Tensor(name="latent norm", copies=layers, units=rank)
    up = Tensor(
        name="key, value",
        copies=layers,
        units=heads,
        unit=nope + value,
        other=rank,
        split=Split.HEADS,
        stored=form,
    )
    yield up
    if form is not Stored.PLAIN:
        # vLLM 0.33, mla_attention.py: decoding multiplies with a copy that is not quantised.
        yield replace(up, name="key, value, not quantised", stored=Stored.PLAIN, made=True)
    yield replace(up, name="attention output", unit=value, other=hidden)


def _dense(facts: ModelFacts, shape: _Shape, layers: int) -> _Tensors:
    """Gate, up and down of the layers without experts."""
    size = facts.intermediate_size
    if size is None:
        yield None
        return
    yield Tensor(
        name="gate, up, down",
        copies=3 * layers,
        units=size,
        other=shape.hidden,
        split=Split.EVEN,
        stored=shape.linear,
    )
    if facts.mlp_bias:
        yield Tensor(name="gate, up bias", copies=2 * layers, units=size, split=Split.EVEN)
        yield Tensor(name="down bias", copies=layers, units=shape.hidden)


def _experts(facts: ModelFacts, family: Family, shape: _Shape, layers: int) -> _Tensors:
    """Router, experts and shared experts of these layers."""
    count, size = facts.num_experts, facts.moe_intermediate_size or facts.intermediate_size
    if count is None or size is None:
        yield None
        return
    hidden = shape.hidden
    yield Tensor(name="router", copies=layers, units=count, other=hidden)
    if facts.router_bias or family.expert_bias:
        stored = Stored.FLOAT32 if facts.router_bias else Stored.PLAIN
        yield Tensor(name="router bias", copies=layers, units=count, stored=stored)
    yield Tensor(
        name="experts' gate, up, down",
        copies=3 * layers * count,
        units=size,
        other=hidden,
        split=Split.EVEN,
        stored=shape.expert,
        experts=count,
    )
    if family.expert_bias:
        yield Tensor(
            name="experts' gate, up bias",
            copies=2 * layers * count,
            units=size,
            split=Split.EVEN,
            experts=count,
        )
        yield Tensor(name="experts' down bias", copies=layers * count, units=hidden, experts=count)
    shared = facts.shared_intermediate_size
    if shared:
        yield Tensor(
            name="shared experts' gate, up, down",
            copies=3 * layers,
            units=shared,
            other=hidden,
            split=Split.EVEN,
            stored=shape.linear,
        )
    if shared and family.shared_gate:
        yield Tensor(name="shared experts' gate value", copies=layers, units=hidden)


def _draft(facts: ModelFacts, family: Family, shape: _Shape, count: int) -> _Tensors:
    """Layers of a draft model (DeepSeek's MTP) that the checkpoint carries and serving does not load."""
    one = replace(shape, layers=count)
    ends = _ends(facts, family, shape)
    parts = (*ends, *_latent_attention(facts, one), *_experts(facts, family, shape, count))
    joined = Tensor(name="joining", copies=count, units=2 * shape.hidden, other=shape.hidden)
    norms = Tensor(name="norms", copies=(family.layer_norms + 2) * count, units=shape.hidden)
    for part in (*parts, joined, norms):
        if part is None or not part.made:
            yield part and replace(part, name=f"draft model, {part.name}", loaded=False)
