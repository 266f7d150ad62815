"""Ranks of `vllm preload` that are forked: a spawned one imports all of vLLM a second time.

In: vLLM's module with that command. Out: the module, with ranks that begin with what their parent imported.
Refuses to know: weights, sockets, arguments. Where a fork is not possible the ranks are spawned as ever, and
a mark says why.

vLLM 0.32 and 0.33 (entrypoints/cli/preload.py) ask `multiprocessing` for "spawn", and have no switch.
"""

import gc
import multiprocessing
import warnings
from multiprocessing.context import BaseContext, ForkContext, ForkProcess
from types import ModuleType
from typing import Any

from warmstack_shared.forking import why_unfit
from warmstack_shared.marks import emit
from warmstack_shared.openmp import end_openmp_threads


class ForkedRank(ForkProcess):
    """Forked when it is made and not at `start`: in between vLLM starts the thread that answers /health, and
    a process with threads must not be forked.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        end_openmp_threads()
        with warnings.catch_warnings():
            # Python 3.12 warns when there are threads: OpenBLAS has some, and looks after itself in a fork.
            warnings.simplefilter("ignore", DeprecationWarning)
            super().start()

    def start(self) -> None:
        """Nothing: it runs."""


class RankContext(ForkContext):
    """What vLLM takes for the spawn context."""

    Process = ForkedRank


class Multiprocessing:
    """Stands for the module `multiprocessing` in one module of vLLM."""

    def get_context(self, method: str | None = None) -> BaseContext:
        """Asked once, when the configuration is made and no rank has begun."""
        if method == "spawn":
            why = why_unfit(thorough=True)
            emit("ranks", start="spawned" if why else "forked", sentence=why)
            if why is None:
                gc.freeze()  # a collection in a rank would write to every page that it shares with its parent
                return RankContext()
        return multiprocessing.get_context(method)

    def __getattr__(self, name: str) -> Any:
        return getattr(multiprocessing, name)


def fork_ranks(preload: ModuleType) -> None:
    """Replace what `preload` makes its processes with."""
    if getattr(preload, "multiprocessing", None) is not multiprocessing:
        emit("ranks", start="spawned", sentence=f"{preload.__name__} does not use multiprocessing as known")
        return
    setattr(preload, "multiprocessing", Multiprocessing())  # noqa: B010  # modules have no such attribute
