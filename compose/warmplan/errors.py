"""What a user did wrong, collected and said in one shape.

In: keys, places and sentences. Out: `UserError`, the one exception that is shown without a traceback. It does
not know where the text is printed.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

NOT_SO: Final = 1
WRONG_INPUT: Final = 2
HOST_UNUSABLE: Final = 3


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is wrong: which key, what, how to mend it, and where it stands when that is known."""

    key: str
    problem: str
    hint: str | None = None
    file: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        place = self.file or ""
        if self.file and self.line is not None:
            place = f"{self.file}:{self.line}"
        parts = [part for part in ("error", place, self.key, self.problem) if part]
        text = ": ".join(parts)
        return f"{text}\nhint: {self.hint}" if self.hint else text


class UserError(Exception):
    """Wrong input or an unusable host: every problem found at once, and the exit code of the program.

    `exit_code` is 1 (what was checked is not so), 2 (wrong input) or 3 (docker or host unusable).
    """

    def __init__(self, problems: Problem | Iterable[Problem], *, exit_code: int = WRONG_INPUT) -> None:
        self.problems: tuple[Problem, ...] = (problems,) if isinstance(problems, Problem) else tuple(problems)
        if not self.problems:
            raise ValueError("a UserError needs at least one problem")
        self.exit_code = exit_code
        super().__init__("\n".join(str(problem) for problem in self.problems))


def did_you_mean(word: str, known: Sequence[str]) -> str | None:
    """A hint that names the nearest known word, or None when nothing is near."""
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f"did you mean {near[0]}?" if near else None
