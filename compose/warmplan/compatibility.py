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
class Feature:
    """Something a version has or lacks; `needed_on` names the platforms that do not work without it."""

    name: str
    lacking: str
    needed_on: frozenset[str] = frozenset()


_EVERYWHERE: Final = frozenset({"cpu", "cuda"})
_PRELOAD: Final = Feature(name="`vllm preload`", lacking="it has no `vllm preload`", needed_on=_EVERYWHERE)
_HEALTH: Final = Feature(
    name="health port of the weight cache",
    lacking="its weight cache has no health port",
    needed_on=_EVERYWHERE,
)
_WAITS: Final = Feature(
    name="an engine waits for a late weight cache",
    lacking="its engines do not wait for a late weight cache",
    needed_on=_EVERYWHERE,
)
_COUNTED: Final = Feature(
    name="cached bytes count in --gpu-memory-utilization",
    lacking="it does not count the cached bytes in --gpu-memory-utilization",
    needed_on=_EVERYWHERE,
)
_FULL_KEY: Final = Feature(
    name="KV-cache type and kernel backends in the key",
    lacking="its weight-cache key leaves out the KV-cache type and the kernel backends",
    needed_on=frozenset({"cuda"}),
)
_CPU_PLUGIN: Final = Feature(
    name="this project's CPU plugin",
    lacking="the plugin that keeps weights in shared memory replaces private functions of 0.32",
    needed_on=frozenset({"cpu"}),
)
_EXIT_WARNING: Final = Feature(
    name="an engine warns when the weight cache ends",
    lacking="its engines do not warn when the weight cache ends",
)
FEATURES: Final = (_PRELOAD, _HEALTH, _WAITS, _COUNTED, _FULL_KEY, _CPU_PLUGIN, _EXIT_WARNING)


@dataclass(frozen=True, kw_only=True)
class Version:
    """One minor version of vLLM: what it has, and how many fields its weight-cache key has."""

    number: tuple[int, int]
    key_fields: int
    features: frozenset[Feature]

    @property
    def name(self) -> str:
        return f"{self.number[0]}.{self.number[1]}"

    def lacking(self, platform: str) -> tuple[str, ...]:
        """Sentences about what the platform needs and this version lacks."""
        return tuple(
            feature.lacking
            for feature in FEATURES
            if platform in feature.needed_on and feature not in self.features
        )


_FROM_0_31: Final = frozenset({_PRELOAD, _HEALTH, _WAITS})
_FROM_0_32: Final = _FROM_0_31 | {_COUNTED}
VERSIONS: Final = (
    Version(number=(0, 30), key_fields=9, features=frozenset()),
    Version(number=(0, 31), key_fields=12, features=_FROM_0_31),
    Version(number=(0, 32), key_fields=14, features=_FROM_0_32 | {_CPU_PLUGIN}),
    Version(number=(0, 33), key_fields=22, features=_FROM_0_32 | {_FULL_KEY, _EXIT_WARNING}),
)


def refuse_version(version: str, *, platform: str) -> str | None:
    """Why this vLLM version cannot serve on this platform, or None when it can."""
    supported = " or ".join(entry.name for entry in VERSIONS if not entry.lacking(platform))
    try:
        major, minor = (int(part) for part in version.split(".")[:2])
    except ValueError:
        return f"vLLM {version} is not a version number"
    known = next((entry for entry in VERSIONS if entry.number == (major, minor)), None)
    if known is None:
        older = (major, minor) < VERSIONS[0].number
        reason = "has no weight cache" if older else "has not been tried with this project"
        return f"vLLM {version} {reason}; supported on {platform}: {supported}"
    lacking = known.lacking(platform)
    if not lacking:
        return None
    return f"vLLM {version} is not supported on {platform}: {'; '.join(lacking)}; supported: {supported}"


@dataclass(frozen=True, kw_only=True)
class Quantisation:
    """One method: None in `refused` means that its processed weights can be mapped; `known` says how far."""

    method: str
    known: str = ""
    refused: str | None = None
    instead: str | None = None


_NOT_MAPPED: Final = "its weights cannot be mapped after processing (vLLM: UnsupportedQuantForIPCError)"
_USE_FP8: Final = "use the unquantised checkpoint, or an fp8 one"


def _refused(method: str) -> Quantisation:
    return Quantisation(method=method, refused=_NOT_MAPPED, instead=_USE_FP8)


QUANTISATIONS: Final = (
    Quantisation(
        method="fp8",
        known="works on `cuda` with scales in square blocks; one scale for a matrix or a row is refused",
    ),
    Quantisation(method="mxfp4", known="vLLM says that it can be mapped on `cuda`; not tried"),
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


def refuse_fp8_scales(method: str | None, *, weight_block: int | None) -> tuple[str, str] | None:
    """(sentence, hint) when a checkpoint's fp8 weights are not in square blocks, else None.

    vLLM 0.33, kernels/linear/scaled_mm/cutlass.py: the kernel for one scale a matrix or row learns the width
    of its output while it processes weights, which an engine that maps them does not do: its first step
    fails. Seen on an H200; the same checkpoint is served from disk.
    """
    if method is None or method.lower() != "fp8" or weight_block is not None:
        return None
    return (
        "fp8 with one scale for a matrix or a row does not work with the weight cache: vLLM's kernel for it "
        "cannot start on mapped weights",
        "use an fp8 checkpoint with scales in blocks (weight_block_size), or the unquantised one",
    )


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
