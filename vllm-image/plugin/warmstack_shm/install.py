"""Replaces the hooks. In: an importable vLLM. Out: vLLM with this plugin's parts in place, or
`HookMissingError`.

Refuses to know: what the parts do.
"""

import importlib
import sys
from types import ModuleType

from warmstack_shm.hooks import HookMissingError, check_hooks, hooks_of

_WEIGHT_CACHE = "vllm.model_executor.model_loader.weight_cache"
MODULES = {
    "protocol": f"{_WEIGHT_CACHE}.protocol",
    "daemon": f"{_WEIGHT_CACHE}.daemon",
    "ipc_loader": f"{_WEIGHT_CACHE}.ipc_loader",
    "preload": "vllm.entrypoints.cli.preload",
    "model_loader": "vllm.model_executor.model_loader",
    "layer_utils": "vllm.model_executor.layers.utils",
    "model_utils": "vllm.model_executor.utils",
    "custom_ops": "vllm._custom_ops",
    "cpu_attn": "vllm.v1.attention.backends.cpu_attn",
    "cpu_platform": "vllm.platforms.cpu",
}

_installed = False


def install(*, daemon: bool = False) -> None:
    """Idempotent: vLLM loads its plugins in every process, and the daemon's processes call this themselves.

    `daemon`: also replace what `vllm preload` uses; done without being asked in the process of that command.
    """
    global _installed
    if _installed:
        return
    daemon = daemon or sys.argv[1:2] == ["preload"]
    hooks = hooks_of(daemon=daemon)
    modules = _import_modules({hook.module for hook in hooks})
    check_hooks(hooks, modules, _vllm_version())
    _check_kernels()
    _replace(modules)
    if daemon:
        _replace_daemon(modules)
    _installed = True


def _import_modules(names: set[str]) -> dict[str, ModuleType]:
    modules = {}
    for name in sorted(names):
        path = MODULES[name]
        try:
            modules[name] = importlib.import_module(path)
        except ModuleNotFoundError as error:
            if not path.startswith(error.name or "?"):
                raise  # something else is missing: its own message says more
    return modules


def _check_kernels() -> None:
    """vLLM only warns when its compiled kernels do not load (a missing libnuma.so.1 is enough), and fails
    later.
    """
    import torch

    if hasattr(torch.ops._C, "init_cpu_memory_env"):  # loaded with vllm._custom_ops
        return
    try:
        importlib.import_module("vllm._C")
    except ImportError as error:
        raise HookMissingError(f"vLLM's CPU kernels can't be loaded: {error}") from error
    raise HookMissingError("vLLM's CPU kernels lack init_cpu_memory_env: this is no CPU build of vLLM")


def _vllm_version() -> str:
    from importlib.metadata import version

    return version("vllm")


def _replace(modules: dict[str, ModuleType]) -> None:
    from warmstack_shm import attention, device, key, loader, start_method

    # vLLM imported these two by name into several modules, so each module's own name is replaced.
    for module in modules.values():
        for function in (device.check_ipc_platform_support, device.get_current_device_uuid):
            if hasattr(module, function.__name__):
                setattr(module, function.__name__, function)
    modules["protocol"].hash_checkpoint = key.hash_checkpoint  # type: ignore[attr-defined]
    modules["cpu_attn"]._get_attn_isa = attention.get_attn_isa  # type: ignore[attr-defined]
    modules["model_loader"]._LOAD_FORMAT_TO_MODEL_LOADER["ipc_cache"] = loader.ShmModelLoader
    start_method.keep_start_method()


def _replace_daemon(modules: dict[str, ModuleType]) -> None:
    from warmstack_shm import daemon, entry

    modules["daemon"].TensorEntry = entry.ShmTensorEntry  # type: ignore[attr-defined]
    modules["daemon"]._run_daemon = daemon.run_daemon  # type: ignore[attr-defined]
