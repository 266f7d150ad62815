"""vLLM looks at a model's class in a process of its own: here a forked one, which need not import vLLM again.

In: vLLM's module with the registry of models. Out: the module, asking a child of this process.
Refuses to know: what is looked at. Where a fork is not possible, or vLLM has changed, all is as ever.

vLLM 0.32 and 0.33 (model_executor/models/registry.py) start Python anew for it, and keep the answer in
VLLM_CACHE_ROOT, which each container of the weight cache and an engine's first start begin without.
"""

from collections.abc import Callable
from types import ModuleType

from warmstack_shared.forking import result_in_child, why_unfit
from warmstack_shared.marks import emit
from warmstack_shared.openmp import end_openmp_threads

_NAME = "_run_in_subprocess"


def inspect_in_child(registry: ModuleType) -> None:
    """Replace how `registry` runs a function in another process."""
    stock: Callable[[Callable[[], object]], object] | None = getattr(registry, _NAME, None)
    if stock is None:
        emit("model-inspection", start="as vLLM does it", sentence=f"{registry.__name__} has no {_NAME}")
        return

    def run(function: Callable[[], object]) -> object:
        end_openmp_threads()
        why = why_unfit()
        emit("model-inspection", start="command" if why else "forked", sentence=why)
        return stock(function) if why else result_in_child(function)

    setattr(registry, _NAME, run)
