"""Imports modules ahead of time, and refuses those after which a process must not be forked.

In: names. Out: modules in `sys.modules`; `UnfitError` naming the module that spoilt the process.
Refuses to know: sockets, engines, what the modules are for.
"""

import contextlib
import importlib
import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from warmstack_shared.forking import why_unfit

# What a start of `vllm serve` imports first (vLLM 0.32, 0.33); the rest is learned from an engine's start.
SEEDS = (
    "vllm.entrypoints.cli.main",
    "vllm.entrypoints.cli.serve",
    "vllm.entrypoints.cli.benchmark.main",
    "vllm.entrypoints.openai.api_server",
    "vllm.v1.engine.async_llm",
    "vllm.v1.engine.core",
)
_MOST_MODULES = 20_000
_MOST_TRIALS = 10


class UnfitError(Exception):
    """This process must not be forked any more; `module` is what spoilt it, where that is known."""

    def __init__(self, why: str, module: str | None = None) -> None:
        super().__init__(f"after the import of {module} {why}" if module else why)
        self.module = module


@dataclass(frozen=True, kw_only=True)
class ModuleList:
    """What starts have taught: modules to import ahead, and those that must not be."""

    learned: tuple[str, ...] = ()
    unfit: tuple[str, ...] = ()

    def with_learned(self, names: Iterable[str]) -> "ModuleList":
        learned = tuple(dict.fromkeys((*self.learned, *names)))[:_MOST_MODULES]
        return ModuleList(learned=learned, unfit=self.unfit)

    def with_unfit(self, name: str) -> "ModuleList":
        return ModuleList(learned=self.learned, unfit=tuple(dict.fromkeys((*self.unfit, name))))


def read_list(path: Path) -> ModuleList:
    """The list in a file; an empty one when there is none that can be read: it is only a memory."""
    try:
        value = json.loads(path.read_text())
        return ModuleList(learned=_names(value["learned"]), unfit=_names(value["unfit"]))
    except (OSError, ValueError, KeyError, TypeError):
        return ModuleList()


def write_list(path: Path, modules: ModuleList) -> None:
    """Where it can't be written (no volume, no room) the next nursery learns again."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps({"learned": modules.learned, "unfit": modules.unfit}, indent=1))
        part.replace(path)


def import_ahead(names: Iterable[str], unfit: Iterable[str], *, thorough: bool = False) -> list[str]:
    """Import what is not there yet; returns what was imported. Raises `UnfitError` after the first that
    spoils this process (`thorough`: see `why_unfit`). A module that can't be imported is left to those who
    need it.
    """
    refused, imported = set(unfit), []
    for name in names:
        if name in sys.modules or name in refused:
            continue
        try:
            importlib.import_module(name)
        except Exception:
            continue  # vLLM tries many an optional package itself
        finally:
            if why := why_unfit(thorough=thorough):
                raise UnfitError(why, name)
        imported.append(name)
    return imported


def try_out(names: Iterable[str], modules: ModuleList) -> ModuleList:
    """Import new names in children of this process, which pay for it when one spoils its process.

    Returns the list with those that are fit, and with those that are not.
    """
    left = [name for name in names if name not in sys.modules and name not in modules.unfit]
    for _ in range(_MOST_TRIALS):
        good, bad = _trial(left, modules.unfit)
        modules = modules.with_learned(good)
        if bad is None:
            return modules
        modules = modules.with_unfit(bad)
        left = left[left.index(bad) + 1 :]
    return modules


def _trial(names: list[str], unfit: tuple[str, ...]) -> tuple[list[str], str | None]:
    """What one child could import, and the name at which it ended early."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(BaseException):
            for name in names:
                os.write(write_end, f"? {name}\n".encode())
                if import_ahead([name], unfit, thorough=True):
                    os.write(write_end, f"+ {name}\n".encode())
            code = 0
        os._exit(code)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        told = [line.split() for line in pipe]
    ended_well = os.waitpid(child, 0)[1] == 0
    asked = [name for sign, name in told if sign == "?"]
    good = [name for sign, name in told if sign == "+"]
    return good, None if ended_well or not asked else asked[-1]


def _names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError
    return tuple(str(name) for name in value)
