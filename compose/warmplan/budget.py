"""Memory in bytes: what is held where, and whether it fits.

In: a spec, the resolved model, facts of a host for the checks. Out: `Budget`, the sum line by line. It does
not know how sizes are passed on to vLLM or Compose, nor how they are shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

from warmplan.activations import activation_bytes, is_eager
from warmplan.constants import (
    COPIES_IN_SHM,
    CPU_ENGINE,
    CPU_WEIGHT_CACHE,
    CUDA_CONTEXT,
    CUDA_GRAPHS,
    CUDA_LINKS,
    GIB,
    MIB,
    SHM_PER_RANK,
    SHM_SLACK,
    gib,
)
from warmplan.errors import Problem, UserError
from warmplan.facts import NO_FACTS, ModelFacts
from warmplan.fitting import KvWish, nearest_plan
from warmplan.host import HostFacts
from warmplan.kv import KvLayout
from warmplan.lock import LockedModel
from warmplan.sizes import Weights, full_length, measure_kv, measure_weights, refuse_unknown
from warmplan.spec import Spec

# Numbers of GPUs that are tried for a plan that does not fit.
_MORE_GPUS: Final = (2, 4, 8, 16)
_TABLES: Final = "tables that vLLM keeps beside the weights"
_TABLES_FROM: Final = "positions of the model times rotary size"
# What a second engine is there for; none: the first is only ever restarted.
Second = Literal["none", "roll", "standby"]
_SURGE: Final = "surge_"
_OF_ENGINE: Final = frozenset({"engine_context", "graphs", "activations", "kv_cache", "copy"})
TELL_SIZE: Final = "tell the size of the weights: make lock, or model.weight_gib of one rank"


@dataclass(frozen=True, kw_only=True)
class Part:
    """One line of the sum. `key` is for programs. Not `known`: nobody told the size, and the sum lacks it."""

    key: str
    name: str
    bytes: int
    source: str
    known: bool = True


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Sizes in bytes. `memory_bytes` is one GPU, or None on the CPU, whose memory is the host's.

    `rank_weight_bytes` is None while nobody has told the size of the weights: then the sum lacks it, and what
    would be free or would fit is None too. What follows from the KV cache is None while its layout is not
    known. `length_tokens` is one request of full length, `request_bytes` what it takes of the KV cache,
    `full_length_requests` how many fit. `second` is what a second engine is there for; the sum counts it.
    """

    ranks: int
    weight_bytes: int | None
    rank_weight_bytes: int | None
    weight_bytes_from: str | None
    kv_cache_bytes: int
    kv_cache_tokens: int | None
    kv_bytes_per_token: int | None
    kv_layout: KvLayout | None
    length_tokens: int | None
    request_bytes: int | None
    full_length_requests: float | None
    shm_bytes: int
    utilization: float | None
    second: Second
    parts: tuple[Part, ...]
    total_bytes: int
    memory_bytes: int | None

    @property
    def free_bytes(self) -> int | None:
        """What one GPU has beyond the sum."""
        if self.memory_bytes is None or self.rank_weight_bytes is None:
            return None
        return self.memory_bytes - self.total_bytes

    @property
    def surge_bytes(self) -> int:
        """What a second engine takes beside the first."""
        return sum(part.bytes for part in self.parts if part.key.startswith(_SURGE))

    @property
    def engine_bytes(self) -> int:
        """What one engine takes of one GPU beside the weights that it maps."""
        return sum(part.bytes for part in self.parts if part.key in _OF_ENGINE)

    @property
    def steady_bytes(self) -> int:
        """What is held all the time: a roll's second engine is there for minutes, a standby always."""
        return self.total_bytes - (self.surge_bytes if self.second == "roll" else 0)

    @property
    def largest_rank_weight_bytes(self) -> int | None:
        """The largest weights of one rank that fit beside everything else as planned."""
        if self.free_bytes is None or self.rank_weight_bytes is None:
            return None
        copies = sum(1 for part in self.parts if part.key in ("weights", "copy", "surge_copy"))
        return self.rank_weight_bytes + self.free_bytes // copies

    @property
    def largest_kv_cache_bytes(self) -> int | None:
        """The largest KV cache of one rank that fits beside everything else as planned."""
        if self.free_bytes is None:
            return None
        engines = sum(1 for part in self.parts if part.key in ("kv_cache", "surge_kv_cache"))
        return self.kv_cache_bytes + self.free_bytes // engines


def compute_budget(*, spec: Spec, model: LockedModel | None, host: HostFacts | None) -> Budget:
    """Add up what the stack holds.

    Errors: `UserError` (exit code 2) when the plan contradicts itself, does not fit the stated GPU or the
    host (with the bytes that are missing and the nearest plan that fits), or rests on sizes nobody knows.
    """
    facts = model.facts if model is not None else NO_FACTS
    weights = measure_weights(spec, model)
    kv = measure_kv(spec, facts)
    refuse_unknown(spec, model, kv)
    length = full_length(spec, facts)
    kv_bytes = _kv_cache_bytes(spec, kv, length)
    _check_one_request(kv, kv_bytes, length)
    memory = None if spec.gpu.memory_gib is None else int(spec.gpu.memory_gib * GIB)
    second = _second_engine(spec, facts, weights, kv_bytes, memory)
    parts = tuple(_parts(spec, facts, weights, kv_bytes, second))
    known = kv is not None and length is not None
    budget = Budget(
        ranks=spec.tensor,
        weight_bytes=weights.whole,
        rank_weight_bytes=weights.rank,
        weight_bytes_from=weights.source,
        kv_cache_bytes=kv_bytes,
        kv_cache_tokens=None if kv is None else kv.tokens(kv_bytes, length=length),
        kv_bytes_per_token=None if kv is None else kv.token_bytes,
        kv_layout=kv,
        length_tokens=length,
        request_bytes=kv.request_bytes(length) if kv is not None and length is not None else None,
        full_length_requests=kv.requests(kv_bytes, length=length or 1) if kv is not None and known else None,
        shm_bytes=_shm_bytes(spec, weights),
        utilization=_utilization(spec, facts, weights, kv_bytes, memory),
        second=second,
        parts=parts,
        total_bytes=sum(part.bytes for part in parts),
        memory_bytes=memory,
    )
    problems = [
        *_check_gpu(spec, model, budget),
        *(_check_host(spec, budget, host) if host is not None else ()),
    ]
    if problems:
        raise UserError(problems)
    return budget


def _kv_cache_bytes(spec: Spec, kv: KvLayout | None, length: int | None) -> int:
    wish = spec.engine
    if wish.kv_cache_gib is not None:
        return int(wish.kv_cache_gib * GIB)
    assert kv is not None, "refuse_unknown has stopped this"
    if wish.kv_cache_tokens is not None:
        return kv.bytes_for_tokens(wish.kv_cache_tokens, length=length)
    assert wish.kv_cache_concurrency is not None
    if length is None:
        text = "means requests of full length, and the model says none"
        hint = "set engine.max_model_len"
        raise UserError(Problem(key="engine.kv_cache.concurrency", problem=text, hint=hint))
    return kv.bytes_for_requests(wish.kv_cache_concurrency, length=length)


def _check_one_request(kv: KvLayout | None, kv_bytes: int, length: int | None) -> None:
    """vLLM refuses to start when one request of full length does not fit the KV cache."""
    if kv is None or length is None or kv.request_bytes(length) <= kv_bytes:
        return
    needed, longest = kv.request_bytes(length), kv.longest(kv_bytes)
    text = f"{gib(kv_bytes)} hold a request of {longest} tokens, and one may have {length}"
    more = f"give engine.kv_cache.gib {math.ceil(needed / GIB * 1000) / 1000:g} or more"
    less = f", or engine.max_model_len {longest} or less" if longest else ""
    missing = f"{text}: {gib(needed - kv_bytes)} too little"
    raise UserError(Problem(key="engine.kv_cache", problem=missing, hint=more + less))


def _second_engine(
    spec: Spec, facts: ModelFacts, weights: Weights, kv_bytes: int, memory: int | None
) -> Second:
    """What was wished; without a wish a roll where it fits.

    The memory of a CPU host stands in no environment: there a roll is planned and looks when it begins.
    """
    if spec.engine.standby:
        return "standby"
    if spec.engine.roll is not None:
        return "roll" if spec.engine.roll else "none"
    if spec.platform == "cpu":
        return "roll"
    if weights.rank is None or memory is None:
        return "none"
    both = sum(part.bytes for part in _parts(spec, facts, weights, kv_bytes, "roll"))
    return "roll" if both <= memory else "none"


def _parts(spec: Spec, facts: ModelFacts, weights: Weights, kv_bytes: int, second: Second) -> Iterator[Part]:
    """The lines of the sum: for one GPU, or for the host's memory on the CPU."""
    rank, source = weights.rank or 0, weights.source or "unknown"
    known = weights.rank is not None
    miss = "engine's own copy after a miss"
    copy = Part(key="copy", name=miss, bytes=rank, source="engine.on_miss: disk", known=known)
    surge = "standby engine" if second == "standby" else "second engine of a roll"
    if spec.platform == "cpu":
        yield from _host_parts(spec, weights, source, kv_bytes)
    else:
        held = "weights, held by the weight cache"
        yield Part(key="weights", name=held, bytes=rank, source=source, known=known)
        if weights.tables:
            yield Part(key="tables", name=_TABLES, bytes=weights.tables, source=_TABLES_FROM)
        context = CUDA_CONTEXT
        name = "weight cache, CUDA context"
        yield Part(key="weight_cache_context", name=name, bytes=context.bytes, source=context.source)
        yield from _engine_parts(spec, facts, "engine", "", kv_bytes)
    if spec.engine.on_miss == "disk":
        yield copy
    if second != "none":
        if spec.platform == "cuda":
            yield from _engine_parts(spec, facts, surge, _SURGE, kv_bytes)
        else:
            yield from _host_engine_parts(spec, f"{surge}, ", _SURGE, kv_bytes)
        if spec.engine.on_miss == "disk":
            yield replace(copy, key=f"{_SURGE}copy", name=f"{surge}, own copy after a miss")
    if spec.platform == "cuda":
        headroom = int(spec.gpu.headroom_gib * GIB)
        yield Part(key="headroom", name="headroom", bytes=headroom, source="gpu.headroom_gib")


def _engine_parts(spec: Spec, facts: ModelFacts, who: str, prefix: str, kv_bytes: int) -> Iterator[Part]:
    """What one engine holds on one GPU beside the weights that it maps."""
    yield _engine_context(f"{prefix}engine_context", f"{who}, CUDA context", spec)
    if not is_eager(spec):
        size, source = CUDA_GRAPHS.bytes, CUDA_GRAPHS.source
        yield Part(key=f"{prefix}graphs", name=f"{who}, CUDA graphs", bytes=size, source=source)
    size, source = activation_bytes(spec, facts)
    yield Part(key=f"{prefix}activations", name=f"{who}, activations", bytes=size, source=source)
    cache = "KV cache" if not prefix else f"{who}, KV cache"
    yield Part(key=f"{prefix}kv_cache", name=cache, bytes=kv_bytes, source="engine.kv_cache")


def _engine_context(key: str, name: str, spec: Spec) -> Part:
    """An engine's context on one GPU; with more ranks than one also its buffers to the other GPUs."""
    context = CUDA_CONTEXT
    if spec.tensor == 1:
        return Part(key=key, name=name, bytes=context.bytes, source=context.source)
    source = f"{context.source}; and {gib(CUDA_LINKS.bytes)} of buffers, {CUDA_LINKS.source}"
    return Part(key=key, name=f"{name} and links", bytes=context.bytes + CUDA_LINKS.bytes, source=source)


def _host_parts(spec: Spec, weights: Weights, source: str, kv_bytes: int) -> Iterator[Part]:
    held, tables = (weights.rank or 0) * spec.tensor, weights.tables * spec.tensor
    known = weights.rank is not None
    yield Part(key="weights", name="weights in shared memory", bytes=held, source=source, known=known)
    if tables:
        yield Part(key="tables", name=_TABLES, bytes=tables, source=_TABLES_FROM)
    again = "engines still map the first one"
    reload = "second copy during a reload"
    yield Part(key="reload", name=reload, bytes=held + tables, source=again, known=known)
    cache = CPU_WEIGHT_CACHE
    process = cache.bytes * spec.tensor
    yield Part(key="weight_cache", name="weight-cache process", bytes=process, source=cache.source)
    yield from _host_engine_parts(spec, "", "", kv_bytes)


def _host_engine_parts(spec: Spec, who: str, prefix: str, kv_bytes: int) -> Iterator[Part]:
    """What one engine takes of the host's memory beside the weights that it maps."""
    process, cache = CPU_ENGINE.bytes * spec.tensor, kv_bytes * spec.tensor
    name = f"{who}process" if who else "engine process"
    yield Part(key=f"{prefix}engine", name=name, bytes=process, source=CPU_ENGINE.source)
    yield Part(key=f"{prefix}kv_cache", name=f"{who}KV cache", bytes=cache, source="engine.kv_cache")


def _shm_bytes(spec: Spec, weights: Weights) -> int:
    """The size of /dev/shm. On the CPU it holds the weights; on CUDA only queues between processes."""
    if spec.platform == "cuda":
        return SHM_SLACK.bytes + SHM_PER_RANK.bytes * spec.tensor
    wanted = COPIES_IN_SHM * (weights.rank or 0) * spec.tensor + SHM_SLACK.bytes
    return math.ceil(wanted / MIB) * MIB


def _utilization(
    spec: Spec, facts: ModelFacts, weights: Weights, kv_bytes: int, memory: int | None
) -> float | None:
    """The share of a GPU for one engine: weights that others hold, KV cache, graphs and activations.

    vLLM 0.33 (v1/worker/utils.py, request_memory) wants this share, less the weights, to be free when the
    worker looks, which is after its context and its links to other GPUs exist: so they are not in it.
    Rounded down, for the same reason. `--kv-cache-memory-bytes` alone decides the size of the KV cache.
    """
    if spec.platform != "cuda" or weights.rank is None or not memory:
        return None
    work = activation_bytes(spec, facts)[0] + (0 if is_eager(spec) else CUDA_GRAPHS.bytes)
    used = weights.rank + weights.tables + kv_bytes + work
    return math.floor(used / memory * 10000) / 10000


def _check_gpu(spec: Spec, model: LockedModel | None, budget: Budget) -> list[Problem]:
    memory = budget.memory_bytes
    if memory is None or budget.total_bytes <= memory:
        return []
    over = budget.total_bytes - memory
    text = f"{gib(budget.total_bytes)} are needed on a GPU of {gib(memory)}: {gib(over)} too much"
    room = budget.largest_kv_cache_bytes
    if room is None:
        beside = f"{text}, and that without the weights, whose size is not known"
        return [Problem(key="gpu.memory_gib", problem=beside, hint=f"lower engine.kv_cache, and {TELL_SIZE}")]
    wish = KvWish(
        tokens=spec.engine.kv_cache_tokens is not None,
        concurrency=spec.engine.kv_cache_concurrency is not None,
    )

    wished = "engine.standby" if spec.engine.standby else "engine.roll"
    fits_alone = budget.surge_bytes > 0 and budget.total_bytes - budget.surge_bytes <= memory
    hint = nearest_plan(
        room=room,
        kv=budget.kv_layout,
        length=budget.length_tokens,
        wish=wish,
        without=f"{wished} false" if fits_alone else None,
        fitting_tensor=next(
            (n for n in _MORE_GPUS if n > spec.tensor and _fits(spec, model, n, memory)), None
        ),
    )
    return [Problem(key="gpu.memory_gib", problem=text, hint=hint)]


def _fits(spec: Spec, model: LockedModel | None, tensor: int, memory: int) -> bool:
    """Whether the same wish fits when the model is split over so many GPUs of this size."""
    wider = replace(spec, tensor=tensor)
    second: Second = "standby" if spec.engine.standby else "roll" if spec.engine.roll else "none"
    facts = model.facts if model is not None else NO_FACTS
    if spec.model.weight_gib is not None or spec.model.kv_bytes_per_token is not None:
        return False  # These are numbers for the ranks of the wish.
    try:
        weights, kv = measure_weights(wider, model), measure_kv(wider, facts)
        kv_bytes = _kv_cache_bytes(wider, kv, full_length(wider, facts))
    except UserError:
        return False
    return sum(part.bytes for part in _parts(wider, facts, weights, kv_bytes, second)) <= memory


def _check_host(spec: Spec, budget: Budget, host: HostFacts) -> list[Problem]:
    """What this machine lacks. On CUDA also that the stated GPU is the one that is there."""
    # A roll that nobody asked for is no reason to refuse: it looks for its memory when it begins.
    needed = budget.total_bytes if spec.engine.roll else budget.steady_bytes
    if spec.platform == "cpu":
        return _check_host_memory(spec, budget, needed, host.memory_bytes)
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
        if needed > gpu.total_bytes:
            text = f"{gib(needed)} are needed and GPU {gpu.uuid} has {gib(gpu.total_bytes)}"
            problems.append(Problem(key="gpu.memory_gib", problem=text, hint="lower engine.kv_cache"))
    return problems


def _check_host_memory(spec: Spec, budget: Budget, needed: int, memory: int) -> list[Problem]:
    if needed <= memory:
        return []
    text = f"{gib(needed)} of memory are needed and the host has {gib(memory)}"
    offers = ["use a smaller model or a smaller engine.kv_cache"]
    if budget.total_bytes - budget.surge_bytes <= memory:
        offers.append("engine.standby false" if spec.engine.standby else "engine.roll false")
    return [Problem(key="model.name", problem=text, hint=", or ".join(offers))]
