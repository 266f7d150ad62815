"""vLLM's flags: which command gets a flag, and how its value is written.

In: a flag's name as a person writes it and its JSON value. Out: command line words, or the sentence that
refuses them. It does not know the models, nor which values of a flag make sense: vLLM says that.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import Final

from warmplan import flag_names
from warmplan.document import Json
from warmplan.errors import did_you_mean


class Form(Enum):
    """How a flag takes its value."""

    BOOLEAN = "--flag or --no-flag"
    SWITCH = "--flag or nothing"
    JSON = "one word of JSON"
    LIST = "several words"
    REPEATED = "the flag again for each value"
    TEXT = "one word"


class Scope(Enum):
    """Which command gets a flag."""

    BOTH = "engine and weight cache"
    ENGINE = "engine"
    WEIGHT_CACHE = "weight cache"


@dataclass(frozen=True, kw_only=True)
class Flag:
    """One flag. `owner` is set when another key, or the plan itself, decides its value."""

    name: str
    form: Form
    scope: Scope
    owner: str | None = None
    since_0_33: bool = False


# Decides which weights are held or how they are laid out: a field of vLLM's weight-cache key, or read by what
# makes one.
_BOTH_NAMES: Final = """
    allow-deprecated-quantization attention-backend attention-config code-revision config-format convert dtype
    enable-ep-weight-filter enable-expert-parallel enable-flashinfer-autotune expert-placement-strategy
    hf-config-path hf-overrides ignore-patterns kernel-config kv-cache-dtype kv-cache-dtype-skip-layers
    language-model-only linear-backend mm-encoder-attn-backend mm-encoder-only mm-encoder-tp-mode model
    model-class-overrides model-impl moe-backend quantization quantization-config revision runner spec-method
    spec-model spec-tokens speculative-config tensor-parallel-size trust-remote-code
"""
_BOTH: Final = frozenset(_BOTH_NAMES.split())
# Read while a checkpoint is read from disk, which the engine never does.
_LOADING_NAMES: Final = """
    download-dir max-parallel-loading-workers pt-load-map-location safetensors-load-strategy
    safetensors-prefetch-block-size safetensors-prefetch-num-threads use-tqdm-on-load
"""
_LOADING: Final = frozenset(_LOADING_NAMES.split())
_PLANNED: Final = "the plan writes it"
_OWNERS: Final = {
    "model": "use model.name",
    "revision": "use model.revision",
    "served-model-name": "use model.served_name",
    "dtype": "use model.dtype",
    "quantization": "use model.quantization",
    "trust-remote-code": "use model.trust_remote_code",
    "tensor-parallel-size": "use parallel.tensor",
    "max-model-len": "use engine.max_model_len",
    "max-num-seqs": "use engine.max_num_seqs",
    "kv-cache-memory-bytes": "use engine.kv_cache",
    "gpu-memory-utilization": f"{_PLANNED}, so that it agrees with engine.kv_cache",
    "device-memory-utilization": f"{_PLANNED}, so that it agrees with engine.kv_cache",
    "num-gpu-blocks-override": "use engine.kv_cache",
    "device-ids": "use gpu.devices",
    "load-format": _PLANNED,
    "model-loader-extra-config": _PLANNED,
    "host": "the engine is reached through the gateway; use gateway.host",
    "port": "the engine is reached through the gateway; use gateway.port",
    "uds": "the engine is reached through the gateway",
    "api-key": "a key on the command line is readable by everyone on the host; use gateway.api_key: true",
    "hf-token": "the token is only needed to fetch the model and stays out of the services",
    "config": "flags in another file would escape the plan; write them here",
    "headless": "the engine serves HTTP itself",
    "grpc": "the gateway speaks HTTP to the engine",
    "grpc-port": "the gateway speaks HTTP to the engine",
    "ssl-keyfile": "TLS ends at the gateway",
    "ssl-certfile": "TLS ends at the gateway",
    "weight-cache-socket-dir": _PLANNED,
    "weight-cache-health-port": _PLANNED,
    "weight-cache-health-host": _PLANNED,
}
# Variables that choose a kernel and with it the layout of the processed weights, so both sides need the same
# value.
_BOTH_VARIABLES: Final = (
    "VLLM_CPU_SGL_KERNEL",
    "VLLM_CPU_INT4_W4A8",
    "VLLM_USE_DEEP_GEMM",
    "VLLM_USE_FLASHINFER_MOE_",
    "VLLM_USE_FLASHINFER_MXFP4_",
    "VLLM_MOE_USE_DEEP_GEMM",
    "VLLM_MXFP4_",
    "VLLM_NVFP4_",
    "VLLM_MARLIN_",
    "VLLM_DISABLED_KERNELS",
    "WARMSTACK_LINEAR_LAYOUT",
)


def _table() -> dict[str, Flag]:
    forms = (
        (Form.BOOLEAN, flag_names.ENGINE_BOOLEAN + flag_names.FRONTEND_BOOLEAN),
        (Form.SWITCH, flag_names.ENGINE_SWITCH + flag_names.FRONTEND_SWITCH),
        (Form.JSON, flag_names.ENGINE_JSON + flag_names.FRONTEND_JSON),
        (Form.LIST, flag_names.ENGINE_LIST + flag_names.FRONTEND_LIST),
        (Form.REPEATED, flag_names.FRONTEND_REPEATED),
        (Form.TEXT, flag_names.ENGINE_TEXT + flag_names.FRONTEND_TEXT + flag_names.PRELOAD_TEXT),
    )
    newer = frozenset(flag_names.SINCE_0_33.split())
    return {
        name: Flag(
            name=name, form=form, scope=_scope(name), owner=_OWNERS.get(name), since_0_33=name in newer
        )
        for form, names in forms
        for name in names.split()
    }


def _scope(name: str) -> Scope:
    if name in _BOTH:
        return Scope.BOTH
    if name in _LOADING or name in flag_names.PRELOAD_TEXT.split():
        return Scope.WEIGHT_CACHE
    return Scope.ENGINE


FLAGS: Final = _table()


def canonical(name: str) -> str:
    """The flag's name as vLLM lists it, without dashes in front: `hf_overrides` becomes `hf-overrides`."""
    return name.removeprefix("--").replace("_", "-")


def find_flag(name: str) -> Flag | None:
    """The flag of that name, whichever way it is written; None when vLLM has no such flag."""
    return FLAGS.get(canonical(name))


def unknown_flag_hint(name: str) -> str:
    """What to do about a name that is no flag."""
    bare = canonical(name)
    if bare.startswith("no-") and bare.removeprefix("no-") in FLAGS:
        return f"write {bare.removeprefix('no-')}: false"
    return did_you_mean(bare, tuple(FLAGS)) or "`vllm serve --help=all` lists the flags of vLLM"


def variable_scope(name: str) -> Scope:
    """Which containers need an environment variable that was set for the engine."""
    return Scope.BOTH if name.startswith(_BOTH_VARIABLES) else Scope.ENGINE


def refuse_value(flag: Flag, value: Json) -> str | None:
    """Why the value does not fit the flag's form, or None."""
    if flag.form in (Form.BOOLEAN, Form.SWITCH):
        return None if isinstance(value, bool) else "must be true or false"
    if flag.form is Form.JSON:
        return None if value is not None else "is empty"
    if flag.form in (Form.LIST, Form.REPEATED):
        items = value if isinstance(value, list) else [value]
        if not items or not all(_is_scalar(item) or isinstance(item, dict) for item in items):
            return "must be a list"
        dashed = next((item for item in items if isinstance(item, str) and item.startswith("-")), None)
        return None if dashed is None else f"holds {dashed}, which vLLM would take for a flag"
    return None if _is_scalar(value) else "must be a single value"


def _is_scalar(value: Json) -> bool:
    return isinstance(value, (str, int, float)) and not isinstance(value, bool)


def words(flag: Flag, value: Json) -> tuple[str, ...]:
    """The command line words for a flag and its value; a list gives one word more for each item."""
    name = f"--{flag.name}"
    if flag.form is Form.BOOLEAN:
        return (name if value else f"--no-{flag.name}",)
    if flag.form is Form.SWITCH:
        return (name,) if value else ()
    if flag.form is Form.LIST:
        items = value if isinstance(value, list) else [value]
        return (name, *(_word(item) for item in items))
    if flag.form is Form.REPEATED:
        items = value if isinstance(value, list) else [value]
        return tuple(f"{name}={_word(item)}" for item in items)
    if flag.form is Form.JSON and not isinstance(value, str):
        return (f"{name}={compact_json(value)}",)
    return (f"{name}={_word(value)}",)


def _word(value: Json) -> str:
    return value if isinstance(value, str) else compact_json(value)


def compact_json(value: Json) -> str:
    """JSON on one line with the characters as they are; the same value always gives the same text."""
    return json.dumps(value, ensure_ascii=False)
