"""Care for what torch.compile, Triton and FlashInfer keep: a start never fails twice over a broken cache.

In: lines of a start that failed, folders. Out: the folders set aside, so that the next start builds anew.
Refuses to know: what is in them. Weights are never below these folders.
"""

import contextlib
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

# vLLM 0.32, 0.33 (compilation/decorators.py): it builds a function again that it could not load, and goes on.
_REBUILT = re.compile(r"Compiling model again due to a load failure from .*")
# Lines below an error have no level of their own; those that have one of these are no errors.
_NO_ERROR = re.compile(r"\b(DEBUG|INFO|WARNING) \d\d-\d\d ")
# A cache that breaks vLLM without a word (a library that is cut short) is thought of after so many starts.
_FAILURES_WITHOUT_A_WORD = 2


@dataclass(kw_only=True)
class CompileCache:
    """`failures`: starts in a row that ended before they were ready and not over the weight cache."""

    folders: tuple[Path, ...]
    failures: int = 0
    named: Path | None = None
    spent: bool = False  # once set aside it is not the reason

    def read(self, line: str) -> str | None:
        """A sentence when vLLM says that it builds anew; remembers which folder an error names."""
        if found := _REBUILT.search(line):
            return found.group(0).rstrip()
        if not _NO_ERROR.search(line):
            self.named = next((path for path in self.folders if f"{path}/" in line), self.named)
        return None

    def succeeded(self) -> None:
        self.failures, self.named, self.spent = 0, None, False

    def failed(self) -> None:
        self.failures += 1

    def set_aside(self) -> str | None:
        """Before a start: what was set aside and why; None when nothing is held against the caches."""
        suspected = self.named is not None or self.failures >= _FAILURES_WITHOUT_A_WORD
        if self.spent or not suspected:
            return None
        moved = list(_move(self.folders))
        self.spent = True
        if not moved:
            return None
        why = f"an error named {self.named}" if self.named else f"{self.failures} starts in a row failed"
        return f"{why}: compiled code is built anew ({', '.join(map(str, moved))} set aside)"


def _move(folders: Iterable[Path]) -> Iterable[Path]:
    """Rename each folder that has something in it; what was set aside before goes."""
    for folder in folders:
        with contextlib.suppress(OSError):
            if any(folder.iterdir()):
                aside = folder.with_name(f"{folder.name}.set-aside")
                shutil.rmtree(aside, ignore_errors=True)
                folder.rename(aside)
                yield folder
