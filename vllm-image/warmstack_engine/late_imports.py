"""What an engine still imports although it came out of the nursery, so that the next one need not.

In: a file that engine and PID 1 both have open. Out: names of modules, in the order of their imports.
Refuses to know: what is done with them. The file is anonymous memory, so nothing of it outlives both.
"""

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

# Python's own function, 3.11 and 3.12: what comes from elsewhere only asks whether a module exists.
_REAL_IMPORT = "_find_and_load_unlocked"
# Code that came with a checkpoint is found by vLLM only, after it has read its arguments.
_NOT_BY_NAME = ("transformers_modules", "__mp_main__")


class Recorder(MetaPathFinder):
    """First in `sys.meta_path`. It finds nothing; it writes down what Python is about to look for.

    Processes that are forked from this one go on writing to the same file, one name a line.
    """

    def __init__(self, target: int) -> None:
        self._target = target

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> None:
        if sys._getframe(2).f_code.co_name == _REAL_IMPORT and not fullname.startswith(_NOT_BY_NAME):
            os.write(self._target, f"{fullname}\n".encode())


def make_record() -> int:
    """A new file for the names; a file descriptor."""
    return os.memfd_create("late-imports")


def read_record(record: int) -> list[str]:
    """The names so far, each once."""
    text = os.pread(record, record_bytes(record), 0).decode()
    whole = text.rpartition("\n")[0]
    return list(dict.fromkeys(whole.split("\n"))) if whole else []


def record_bytes(record: int) -> int:
    return os.fstat(record).st_size
