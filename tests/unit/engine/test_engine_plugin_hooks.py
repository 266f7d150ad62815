"""The plugin's check of vLLM's private names: it passes on the right shape, and each loss is named."""

from types import SimpleNamespace
from typing import Any

import pytest

from warmstack_shared.segment_names import segment_prefix, segments_of
from warmstack_shm.hooks import HOOKS, Hook, HookMissingError, check_hooks, hooks_of


def modules_like_vllm() -> dict[str, Any]:
    modules: dict[str, Any] = {}
    for hook in HOOKS:
        module = modules.setdefault(hook.module, SimpleNamespace())
        owner, _, leaf = hook.path.rpartition(".")
        if owner:
            if not isinstance(getattr(module, owner, None), type):
                setattr(module, owner, type(owner, (), {}))
            module = getattr(module, owner)
        elif hasattr(module, leaf):
            continue
        setattr(module, leaf, _function(hook))
    return modules


def _function(hook: Hook) -> Any:
    made: dict[str, Any] = {}
    exec(f"def f({', '.join(hook.parameters or ())}): ...", made)
    return made["f"]


def test_the_right_shape_passes() -> None:
    check_hooks(HOOKS, modules_like_vllm(), "0.32.0")


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: f"{hook.module}.{hook.path}")
def test_each_missing_hook_is_named_with_both_versions(hook: Hook) -> None:
    modules = modules_like_vllm()
    owner, _, leaf = hook.path.rpartition(".")
    delattr(getattr(modules[hook.module], owner) if owner else modules[hook.module], leaf)
    with pytest.raises(HookMissingError) as caught:
        check_hooks(HOOKS, modules, "0.34.1")
    assert f"the hook {hook.module}.{hook.path} is gone" in str(caught.value)
    assert "written for vLLM 0.32.0" in str(caught.value)
    assert "vLLM 0.34.1" in str(caught.value)


def test_another_signature_is_named() -> None:
    modules = modules_like_vllm()
    modules["protocol"].hash_checkpoint = lambda model, revision: None
    with pytest.raises(HookMissingError, match=r"hash_checkpoint takes \('model', 'revision'\), expected"):
        check_hooks(HOOKS, modules, "0.33.0")


def test_an_engine_needs_no_hook_of_the_daemon() -> None:
    modules = modules_like_vllm()
    del modules["daemon"]
    check_hooks(hooks_of(daemon=False), modules, "0.32.0")
    with pytest.raises(HookMissingError, match="the module daemon is gone"):
        check_hooks(hooks_of(daemon=True), modules, "0.32.0")


def test_a_missing_module_is_named() -> None:
    modules = modules_like_vllm()
    del modules["preload"]
    with pytest.raises(HookMissingError, match="the module preload is gone"):
        check_hooks(HOOKS, modules, "0.33.0")


def test_segments_of_one_socket_are_not_those_of_another(tmp_path: Any) -> None:
    mine = tmp_path / (segment_prefix("/run/a/x.sock") + "12.ab")
    other = tmp_path / (segment_prefix("/run/b/x.sock") + "12.ab")
    for path in (mine, other, tmp_path / "psm_x"):
        path.touch()
    assert segments_of("/run/a/x.sock", tmp_path) == [mine]
