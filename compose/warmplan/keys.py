"""What a key of environment.yaml is: its form, and whether changing it moves the weight cache. Data only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What a value must look like; the value is what the documentation calls it."""

    TEXT = "text"
    INTEGER = "whole number"
    NUMBER = "number"
    BOOLEAN = "true or false"
    CHOICE = "one of"
    TEXTS = "list of text"
    ARGUMENTS = "table of vLLM flags"
    VARIABLES = "table of variables"
    LABELS = "table of labels"


class Moves(Enum):
    """Whether changing the key changes the weight-cache service, which drops the weights."""

    YES = "yes"
    NO = "no"
    BY_FLAG = "for flags and variables that decide the weights"


Default = str | int | float | bool | None


@dataclass(frozen=True, kw_only=True)
class Key:
    """One key. `default` None: see `default_text`, or required when that is empty too.

    `of_model`: says something about the model that stands beside it, so another one from the command line
    leaves it out.
    """

    name: str
    kind: Kind
    moves: Moves
    doc: str
    default: Default = None
    default_text: str = ""
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    of_model: bool = False

    @property
    def required(self) -> bool:
        return self.default is None and not self.default_text

    @property
    def is_table(self) -> bool:
        return self.kind in (Kind.ARGUMENTS, Kind.VARIABLES, Kind.LABELS)
