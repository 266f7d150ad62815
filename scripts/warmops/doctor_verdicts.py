"""What a check of `doctor` says, and the words that several of them share.

In: a sentence, and the fix where there is something to mend. Out: a verdict. It knows no check.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from warmops.doctor_facts import DoctorFacts

Level = Literal["ok", "warn", "fail", "skip"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """`sentence` can be pasted anywhere: secrets stand in it as set or not set. `fix` is what to do."""

    name: str
    level: Level
    sentence: str
    fix: str | None = None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a check returns; its name comes from the table."""

    level: Level
    sentence: str
    fix: str | None = None


@dataclass(frozen=True, kw_only=True)
class Check:
    """`essential`: when it fails no stack of this environment can come up, so `up` asks it too."""

    name: str
    judge: Callable[[DoctorFacts], Verdict]
    essential: bool = False


def ok(sentence: str) -> Verdict:
    return Verdict(level="ok", sentence=sentence)


def warn(sentence: str, fix: str) -> Verdict:
    return Verdict(level="warn", sentence=sentence, fix=fix)


def fail(sentence: str, fix: str) -> Verdict:
    return Verdict(level="fail", sentence=sentence, fix=fix)


def skip(sentence: str) -> Verdict:
    return Verdict(level="skip", sentence=sentence)


NO_ENGINE: Final = skip("the engine does not answer")
NO_PLAN: Final = skip("there is no plan to compare with")
NOT_CUDA: Final = skip("the environment runs on the CPU")
