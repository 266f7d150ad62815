"""The one way a value enters the Compose file.

In: text or a number. Out: a YAML scalar that Compose reads back unchanged. It refuses what the spec should
have refused: control characters.
"""

from __future__ import annotations

import json
import re
from typing import Final

from warmplan.document import control_character

# Line breaks and marks that YAML readers treat specially even between quotes.
_SPECIAL: Final = re.compile("[\u2028\u2029\ufeff\ufffe\uffff]")

_NEEDS_ESCAPES: Final = re.compile("['\\\\\t\n\u2028\u2029\ufeff\ufffe\uffff]|[$][{]")
_NAME: Final = re.compile(r"[A-Z][A-Z0-9_]+")
# Upper-case words that YAML 1.1 readers take for a truth value or nothing.
_WORDS: Final = frozenset({"YES", "NO", "ON", "OFF", "TRUE", "FALSE", "NULL"})


class Quoted(str):
    """Text that is ready for the file; nothing else may be put into it."""

    __slots__ = ()


def quoted(value: str | int | float) -> Quoted:
    """A YAML scalar: the bare word for a variable's name, else text between quotes.

    `$` is doubled, for Compose substitutes variables after YAML is read; a `{` behind it is written as an
    escape, so that the file never holds `${` and a search for it finds a mistake.
    """
    text = str(value)
    found = control_character(text)
    if found is not None:
        raise ValueError(f"a value holds the control character {found}: {text!r}")
    if _NAME.fullmatch(text) and text not in _WORDS:
        return Quoted(text)
    # JSON reads better between single quotes, where nothing is escaped.
    if '"' in text and not _NEEDS_ESCAPES.search(text):
        return Quoted("'" + text.replace("$", "$$") + "'")
    escaped = json.dumps(text, ensure_ascii=False).replace("$", "$$").replace("${", "$\\x7b")
    return Quoted(_SPECIAL.sub(lambda match: f"\\u{ord(match[0]):04x}", escaped))
