"""The text of a systemd unit: how a value is written, and how the file is read back.

In: text. Out: text. It knows the syntax of systemd.syntax(7) and systemd.service(5), as far as our own units
use it, and no unit. A value is never subject to `$`: units write `ExecStart=:…`, which switches that off.
"""

from __future__ import annotations

import re
from typing import Final

from warmplan.document import control_character
from warmplan.quoting import Quoted

_BARE: Final = re.compile(r"[A-Za-z0-9_./:=@+,-]+")
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "%": "%%"}
_READ: Final = {"n": "\n", "t": "\t"}


def unit_quoted(value: str | int) -> Quoted:
    """One word of a unit: bare where nothing in it is special, else between quotes."""
    text = str(value)
    found = control_character(text)
    if found is not None:
        raise ValueError(f"a value holds the control character {found}: {text!r}")
    if _BARE.fullmatch(text):
        return Quoted(text)
    return Quoted('"' + "".join(_ESCAPES.get(letter, letter) for letter in text) + '"')


def read_unit(text: str) -> dict[str, list[list[str]]]:
    """Each setting by its name, as the words of every line that sets it, in the order of the file."""
    joined = re.sub(r"\\\n", " ", text)
    found: dict[str, list[list[str]]] = {}
    for line in joined.splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith(("#", ";", "[")):
            found.setdefault(name, []).append(split_words(value))
    return found


def split_words(text: str) -> list[str]:
    """The words of a value, without quotes and escapes."""
    words: list[str] = []
    word: str | None = None
    quoted = False
    letters = iter(text)
    for letter in letters:
        if letter == '"':
            quoted, word = not quoted, word or ""
        elif letter in " \t" and not quoted:
            words += [] if word is None else [word]
            word = None
        elif letter == "\\":
            escaped = next(letters, "")
            word = (word or "") + _READ.get(escaped, escaped)
        elif letter == "%":
            word = (word or "") + next(letters, "")
        else:
            word = (word or "") + letter
    return [*words, *([] if word is None else [word])]
