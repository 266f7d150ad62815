"""What runs with what: versions of vLLM, quantisation methods, settings that exclude Fast Start.

In: a version, a method, a mode, a flag or a variable's value. Out: the sentence that refuses it, or None. To
support another version of vLLM, add a line to `VERSIONS`; nothing else changes. It does not know where a
value was written.

Sources: vllm/model_executor/model_loader/weight_cache/ and `supports_pre_processed_weights` in the wheels
0.30 to 0.33.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True)
class Version:
    """What one minor version of vLLM can do. `platforms`: where this project supports it."""

    number: tuple[int, int]
    platforms: frozenset[str]
    key_fields: int
    reason: str | None = None


VERSIONS: Final = (
    Version(
        number=(0, 30),
        platforms=frozenset(),
        key_fields=9,
        reason="it has no `vllm preload`, no health port, and engines do not wait for a late weight cache",
    ),
    Version(
        number=(0, 31),
        platforms=frozenset(),
        key_fields=12,
        reason="it does not count the cached bytes in --gpu-memory-utilization",
    ),
    Version(
        number=(0, 32),
        platforms=frozenset({"cpu"}),
        key_fields=14,
        reason="its weight-cache key leaves out the KV-cache type and the kernel backends; use 0.33",
    ),
    Version(
        number=(0, 33), platforms=frozenset({"cuda"}), key_fields=22, reason="no CPU build of it is supported"
    ),
)


def refuse_version(version: str, *, platform: str) -> str | None:
    """Why this vLLM version cannot serve on this platform, or None when it can."""
    try:
        major, minor = (int(part) for part in version.split(".")[:2])
    except ValueError:
        return f"vLLM {version} is not a version number"
    known = next((entry for entry in VERSIONS if entry.number == (major, minor)), None)
    supported = [entry for entry in VERSIONS if platform in entry.platforms]
    names = " or ".join(f"{entry.number[0]}.{entry.number[1]}" for entry in supported)
    if known is None:
        if (major, minor) < VERSIONS[0].number:
            return f"vLLM {version} has no weight cache; supported on {platform}: {names}"
        return f"vLLM {version} has not been tried with this project; supported on {platform}: {names}"
    if platform in known.platforms:
        return None
    return f"vLLM {version} is not supported on {platform}: {known.reason}; supported: {names}"


@dataclass(frozen=True, kw_only=True)
class Quantisation:
    """One method: None in `refused` means that its processed weights can be mapped."""

    method: str
    refused: str | None = None
    instead: str | None = None


_NOT_MAPPED: Final = "its weights cannot be mapped after processing (vLLM: UnsupportedQuantForIPCError)"
_USE_FP8: Final = "use the unquantised checkpoint, or an fp8 one"


def _refused(method: str) -> Quantisation:
    return Quantisation(method=method, refused=_NOT_MAPPED, instead=_USE_FP8)


QUANTISATIONS: Final = (
    Quantisation(method="fp8"),
    Quantisation(method="mxfp4"),
    *(
        _refused(method)
        for method in (
            "awq",
            "awq_marlin",
            "gptq",
            "gptq_marlin",
            "auto_gptq",
            "compressed-tensors",
            "bitsandbytes",
            "gguf",
            "torchao",
            "auto-round",
            "inc",
            "quark",
        )
    ),
)
# ModelOpt has methods of both kinds under one name, so the name alone decides nothing: refused until one is
# tried.
CPU_METHODS: Final = frozenset[str]()


def refuse_quantisation(method: str | None, *, platform: str) -> tuple[str, str] | None:
    """(sentence, hint) when weights of this method cannot be served from the weight cache, else None."""
    if method is None:
        return None
    known = next((entry for entry in QUANTISATIONS if entry.method == method.lower()), None)
    if known is None:
        return f"quantisation {method} has not been tried with the weight cache", _USE_FP8
    if known.refused is not None:
        return (
            f"quantisation {method} does not work with the weight cache: {known.refused}",
            known.instead or "",
        )
    if platform == "cpu" and known.method not in CPU_METHODS:
        return f"quantisation {method} is not mapped on the CPU platform", "use the unquantised checkpoint"
    return None


MODES: Final = ("fast-start", "sleep", "snapshot")
_EXCLUDED_MODES: Final = {
    "sleep": "sleep mode moves weights with an allocator that the zero-copy weight cache does not use",
    "snapshot": "a snapshot holds a whole engine with its own weights, so there is nothing left to map",
}


def refuse_mode(mode: str) -> str | None:
    """Why this mode cannot be used, or None."""
    reason = _EXCLUDED_MODES.get(mode)
    return f"{mode} and fast-start exclude each other: {reason}" if reason else None


_EXCLUDED_FLAGS: Final = {
    "enable-sleep-mode": _EXCLUDED_MODES["sleep"],
    "enable-cumem-allocator": "the zero-copy weight cache does not use the allocator of sleep mode",
    "sleep-mode-backend": _EXCLUDED_MODES["sleep"],
    "sleep-mode-offload-cudagraph": _EXCLUDED_MODES["sleep"],
    "sleep-preserve-parameter-names": _EXCLUDED_MODES["sleep"],
    "enable-eplb": "the weight-cache loader does not support EPLB",
    "enable-elastic-ep": "the weight-cache loader does not support EPLB, which this needs",
    "weight-transfer-config": "weights written from outside would change under every engine that maps them",
    "pipeline-parallel-size": "only tensor parallelism is planned; use parallel.tensor",
    "nnodes": "the weight cache and its engines share one host",
    "node-rank": "the weight cache and its engines share one host",
    "master-addr": "the weight cache and its engines share one host",
}


def refuse_flag(flag: str) -> str | None:
    """Why this vLLM flag cannot be used with Fast Start, or None."""
    if flag.startswith("data-parallel-"):
        return "only tensor parallelism is planned; use parallel.tensor"
    return _EXCLUDED_FLAGS.get(flag)


def refuse_variable(name: str, value: str) -> str | None:
    """Why this environment variable cannot be set, or None."""
    if "expandable_segments:true" in value.lower().replace(" ", ""):
        return (
            f"{name} switches expandable_segments on: such memory is not mapped across PID namespaces, "
            "so every engine start would miss"
        )
    if name == "VLLM_CPU_KVCACHE_SPACE":
        return "VLLM_CPU_KVCACHE_SPACE contradicts --kv-cache-memory-bytes; use engine.kv_cache"
    return None
