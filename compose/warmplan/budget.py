"""Memory in bytes: what is held where, and whether it fits.

In: a spec, the resolved model, facts of a host for the checks. Out: `Budget`, the only place where sizes are
computed. Every constant stands in one table with its source. It does not know how sizes are passed on to vLLM
or Compose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from warmplan.errors import Problem, UserError
from warmplan.host import HostFacts
from warmplan.lock import LockedModel, ModelFacts
from warmplan.spec import Spec

MIB: Final = 1024**2
GIB: Final = 1024**3


@dataclass(frozen=True, kw_only=True)
class Constant:
    """A size that no formula gives: bytes, and where the number comes from."""

    bytes: int
    source: str


CUDA_CONTEXT: Final = Constant(
    bytes=610 * MIB,
    source="measured: one process on an H200, driver 580, vLLM 0.33.0 (16 246 MiB for 15.27 GiB of weights)",
)
CUDA_RESERVE: Final = Constant(
    bytes=4 * GIB, source="chosen, not measured: CUDA graphs, activations and workspaces of one engine"
)
CPU_WEIGHT_CACHE: Final = Constant(
    bytes=1536 * MIB,
    source="measured: container with SmolLM2-135M, vLLM 0.32.0, 2 cores; its weights included",
)
CPU_ENGINE: Final = Constant(
    bytes=1301 * MIB,
    source="measured: container with SmolLM2-135M, vLLM 0.32.0, 2 cores; its weights included",
)
SHM_SLACK: Final = Constant(
    bytes=256 * MIB,
    source="chosen: file headers, alignment, message queues of vLLM; a limit, nothing is reserved",
)
SHM_PER_RANK: Final = Constant(
    bytes=2 * GIB, source="chosen: NCCL and vLLM's message queues; a limit, nothing is reserved"
)
# A reload after a crash fills a second copy while engines still map the first.
COPIES_IN_SHM: Final = 2
# The largest default block of the KV cache (128 tokens on the CPU, 16 on CUDA): sizes in tokens round up to
# it.
BLOCK_TOKENS: Final = 128
# Every layer of these keeps keys and values of every token, so the formula holds. With others (windows,
# latent attention, state-space layers) it would not, and nothing is claimed.
PLAIN_ATTENTION: Final = frozenset(
    {
        "LlamaForCausalLM",
        "MistralForCausalLM",
        "MixtralForCausalLM",
        "Phi3ForCausalLM",
        "Qwen2ForCausalLM",
        "Qwen2MoeForCausalLM",
        "Qwen3ForCausalLM",
        "Qwen3MoeForCausalLM",
    }
)
# Ways of stretching positions after which `max_position_embeddings` still is the longest length.
UNSTRETCHED: Final = frozenset({None, "default", "llama3"})


@dataclass(frozen=True, kw_only=True)
class Part:
    """One line of the sum."""

    name: str
    bytes: int
    source: str


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Sizes in bytes. `memory_bytes` is one GPU, or None on the CPU, whose memory is the host's.

    `rank_weight_bytes` and what follows from it are None while nobody has told the size of the weights.
    """

    weight_bytes: int | None
    weight_bytes_from: str | None
    rank_weight_bytes: int | None
    kv_cache_bytes: int
    kv_cache_tokens: int | None
    kv_bytes_per_token: int | None
    full_length_requests: float | None
    shm_bytes: int
    utilization: float | None
    parts: tuple[Part, ...]
    total_bytes: int
    memory_bytes: int | None


def compute_budget(*, spec: Spec, model: LockedModel | None, host: HostFacts | None) -> Budget:
    """Add up what the stack holds.

    Errors: `UserError` (exit code 2) when the plan contradicts itself or does not fit the stated GPU or the
    host, with the number of bytes that are missing.
    """
    facts = model.facts if model is not None else ModelFacts()
    weight_bytes = model.weight_bytes if model is not None else None
    rank = None if weight_bytes is None else math.ceil(weight_bytes / spec.tensor)
    per_token = kv_bytes_per_token(facts, tensor=spec.tensor, value_bytes=_kv_value_bytes(spec, facts))
    kv_bytes = _kv_cache_bytes(spec, per_token)
    tokens = None if per_token is None else kv_bytes // per_token
    _check_length(spec, facts, tokens, per_token)
    parts = _parts(spec, rank, kv_bytes)
    total = sum(part.bytes for part in parts)
    memory = None if spec.gpu.memory_gib is None else int(spec.gpu.memory_gib * GIB)
    length = spec.engine.max_model_len or facts.max_position_embeddings
    budget = Budget(
        weight_bytes=weight_bytes,
        weight_bytes_from=model.weight_bytes_from if model is not None else None,
        rank_weight_bytes=rank,
        kv_cache_bytes=kv_bytes,
        kv_cache_tokens=tokens,
        kv_bytes_per_token=per_token,
        full_length_requests=None if tokens is None or length is None else tokens / length,
        shm_bytes=_shm_bytes(spec, weight_bytes),
        utilization=_utilization(spec, rank, kv_bytes, memory),
        parts=parts,
        total_bytes=total,
        memory_bytes=memory,
    )
    problems = [*_check_gpu(budget), *(_check_host(spec, budget, host) if host is not None else ())]
    if problems:
        raise UserError(problems)
    return budget


def kv_bytes_per_token(facts: ModelFacts, *, tensor: int, value_bytes: int) -> int | None:
    """Bytes of KV cache that one token takes on one rank, or None for a layout this does not know.

    Plain and grouped attention: 2 (key and value) * layers * KV heads of the rank * head size * bytes of a
    value. With more ranks than KV heads, vLLM repeats heads, so a rank has at least one.
    """
    layers, heads = facts.num_hidden_layers, facts.num_attention_heads
    plain = facts.architecture in PLAIN_ATTENTION and not facts.sliding_window and not facts.kv_lora_rank
    if layers is None or heads is None or not plain:
        return None
    head_dim = facts.head_dim or (facts.hidden_size // heads if facts.hidden_size else None)
    if head_dim is None:
        return None
    kv_heads = math.ceil((facts.num_key_value_heads or heads) / tensor)
    return 2 * layers * kv_heads * head_dim * value_bytes


def _kv_value_bytes(spec: Spec, facts: ModelFacts) -> int:
    kv_dtype = str(dict(spec.engine.arguments).get("kv-cache-dtype", "auto"))
    if kv_dtype.startswith(("fp8", "int8")):
        return 1
    dtype = kv_dtype if kv_dtype != "auto" else spec.model.dtype
    dtype = dtype if dtype != "auto" else (facts.dtype or "bfloat16")
    # vLLM's `auto` serves float32 checkpoints in 16 bits.
    return 4 if dtype == "float32" and spec.model.dtype == "float32" else 2


def _kv_cache_bytes(spec: Spec, per_token: int | None) -> int:
    tokens = spec.engine.kv_cache_tokens
    if tokens is None:
        assert spec.engine.kv_cache_gib is not None
        return int(spec.engine.kv_cache_gib * GIB)
    if per_token is None:
        raise UserError(
            Problem(
                key="engine.kv_cache.tokens",
                problem="the bytes of one token are not known for this model",
                hint="give engine.kv_cache.gib, or lock a model with plain or grouped attention",
            )
        )
    return math.ceil(tokens / BLOCK_TOKENS) * BLOCK_TOKENS * per_token


def _check_length(spec: Spec, facts: ModelFacts, tokens: int | None, per_token: int | None) -> None:
    """vLLM refuses to start when one request of full length does not fit the KV cache."""
    length = spec.engine.max_model_len or facts.max_position_embeddings
    overridden = "hf-overrides" in dict(spec.engine.arguments)
    limit = None if overridden or facts.rope_type not in UNSTRETCHED else facts.max_position_embeddings
    if spec.engine.max_model_len and limit and spec.engine.max_model_len > limit:
        problem = f"{spec.engine.max_model_len} is more than the {limit} tokens the model was made for"
        raise UserError(Problem(key="engine.max_model_len", problem=problem, hint=f"use {limit} or less"))
    if tokens is None or length is None or per_token is None or tokens >= length:
        return
    needed = math.ceil(length * per_token / GIB * 1000) / 1000
    raise UserError(
        Problem(
            key="engine.kv_cache",
            problem=f"holds {tokens} tokens, and one request may have {length}",
            hint=f"give engine.kv_cache.gib {needed:g} or more, or engine.max_model_len {tokens} or less",
        )
    )


def _parts(spec: Spec, rank: int | None, kv_bytes: int) -> tuple[Part, ...]:
    """The lines of the sum: for one GPU, or for the host's memory on the CPU."""
    kv = Part(name="KV cache", bytes=kv_bytes, source="engine.kv_cache")
    second = Part(name="engine's own copy after a miss", bytes=rank or 0, source="engine.on_miss: disk")
    copies = (second,) if spec.engine.on_miss == "disk" else ()
    if spec.platform == "cuda":
        return (
            Part(name="weights, held by the weight cache", bytes=rank or 0, source="lock.yaml"),
            Part(name="weight cache, CUDA context", bytes=CUDA_CONTEXT.bytes, source=CUDA_CONTEXT.source),
            Part(name="engine, CUDA context", bytes=CUDA_CONTEXT.bytes, source=CUDA_CONTEXT.source),
            Part(name="engine, graphs and activations", bytes=CUDA_RESERVE.bytes, source=CUDA_RESERVE.source),
            kv,
            *copies,
        )
    held = (rank or 0) * spec.tensor
    return (
        Part(name="weights in shared memory", bytes=held, source="lock.yaml"),
        Part(name="second copy during a reload", bytes=held, source="engines still map the first one"),
        Part(
            name="weight-cache process",
            bytes=CPU_WEIGHT_CACHE.bytes * spec.tensor,
            source=CPU_WEIGHT_CACHE.source,
        ),
        Part(name="engine process", bytes=CPU_ENGINE.bytes * spec.tensor, source=CPU_ENGINE.source),
        Part(name="KV cache", bytes=kv_bytes * spec.tensor, source=kv.source),
        *copies,
    )


def _shm_bytes(spec: Spec, weight_bytes: int | None) -> int:
    """The size of /dev/shm. On the CPU it holds the weights; on CUDA only queues between processes."""
    if spec.platform == "cuda":
        return SHM_SLACK.bytes + SHM_PER_RANK.bytes * spec.tensor
    wanted = COPIES_IN_SHM * (weight_bytes or 0) + SHM_SLACK.bytes
    return math.ceil(wanted / MIB) * MIB


def _utilization(spec: Spec, rank: int | None, kv_bytes: int, memory: int | None) -> float | None:
    """The share of a GPU for one engine, weights included; vLLM checks free memory against it."""
    if spec.platform != "cuda" or rank is None or not memory:
        return None
    used = rank + kv_bytes + CUDA_CONTEXT.bytes + CUDA_RESERVE.bytes
    return math.ceil(used / memory * 10000) / 10000


def _check_gpu(budget: Budget) -> list[Problem]:
    if budget.memory_bytes is None or budget.total_bytes <= budget.memory_bytes:
        return []
    over = budget.total_bytes - budget.memory_bytes
    room = math.floor((budget.kv_cache_bytes - over) / GIB * 100) / 100
    hint = f"engine.kv_cache.gib {room:g} would fit" if room > 0 else "use more GPUs (parallel.tensor)"
    text = (
        f"{gib(budget.total_bytes)} are needed on a GPU of {gib(budget.memory_bytes)}: {gib(over)} too much"
    )
    return [Problem(key="gpu.memory_gib", problem=text, hint=hint)]


def _check_host(spec: Spec, budget: Budget, host: HostFacts) -> list[Problem]:
    """What this machine lacks. On CUDA also that the stated GPU is the one that is there."""
    if spec.platform == "cpu":
        if budget.total_bytes <= host.memory_bytes:
            return []
        text = f"{gib(budget.total_bytes)} of memory are needed and the host has {gib(host.memory_bytes)}"
        return [
            Problem(key="model.name", problem=text, hint="use a smaller model or a smaller engine.kv_cache")
        ]
    problems = []
    if len(host.gpus) < spec.gpu.count:
        text = f"{spec.gpu.count} GPUs are wanted and the host has {len(host.gpus)}"
        problems.append(
            Problem(key="gpu.count", problem=text, hint="lower parallel.tensor, or use another host")
        )
    known = {gpu.uuid for gpu in host.gpus}
    missing = [uuid for uuid in spec.gpu.devices if uuid not in known]
    if missing:
        text = f"the host has no GPU {', '.join(missing)}"
        problems.append(Problem(key="gpu.devices", problem=text, hint="`nvidia-smi -L` lists them"))
    used = [gpu for gpu in host.gpus if gpu.uuid in spec.gpu.devices] or host.gpus[: spec.gpu.count]
    for gpu in used:
        if budget.total_bytes > gpu.total_bytes:
            text = f"{gib(budget.total_bytes)} are needed and GPU {gpu.uuid} has {gib(gpu.total_bytes)}"
            problems.append(Problem(key="gpu.memory_gib", problem=text, hint="lower engine.kv_cache"))
    return problems


def gib(count: int) -> str:
    """Bytes as GiB for people, two digits."""
    return f"{count / GIB:.2f} GiB"
