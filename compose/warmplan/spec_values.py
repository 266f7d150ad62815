"""Typed values by key, each with the place it was written at.

In: a document and overrides. Out: `Values`, with problems collected and not raised. It knows the table of
keys and the form of each value; what values mean together is the matter of `spec_checks`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from warmplan.document import Document, Entry, Items, Json, Table, Text, Value, control_character, to_json
from warmplan.errors import Problem, did_you_mean
from warmplan.flags import Form, canonical, find_flag
from warmplan.settings import KEYS, Key, Kind, find_key

_INTEGER: Final = re.compile(r"[-+]?[0-9]+")
KV_CACHE_KEYS: Final = ("engine.kv_cache.gib", "engine.kv_cache.tokens", "engine.kv_cache.concurrency")
_NUMBER: Final = re.compile(r"[-+]?[0-9]+(\.[0-9]+)?")


@dataclass(frozen=True, kw_only=True)
class Override:
    """A value from outside the file: `key` as in the table, `value` as typed, `origin` as `up` shows it."""

    key: str
    value: str
    origin: str


@dataclass(frozen=True, kw_only=True)
class Found:
    """A value and where it came from."""

    value: Json
    origin: str
    file: str | None = None
    line: int | None = None


class Values:
    """What was found, by key; lines of a table stand under `key.line`."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self._found: dict[str, Found] = {}
        self._unusable: set[str] = set()

    def add(self, key: str, problem: str, hint: str | None = None) -> None:
        """Report a problem at the place where the key was written."""
        found = self._found.get(key)
        shown = key
        if found is not None and found.file is None and found.origin != "default":
            shown = f"{key} ({found.origin})"
        file, line = (found.file, found.line) if found is not None else (None, None)
        self.problems.append(Problem(key=shown, problem=problem, hint=hint, file=file, line=line))

    def refuse(self, key: str, problem: Problem) -> None:
        """Report that the value of a key cannot be used; the key then has none, not even its default."""
        self.problems.append(problem)
        self._unusable.add(key)
        self._found.pop(key, None)

    def put(self, key: str, found: Found) -> None:
        self._found[key] = found
        self._unusable.discard(key)

    def default(self, key: str, value: Json) -> None:
        """Set a value unless one was given, usable or not."""
        if key not in self._unusable:
            self._found.setdefault(key, Found(value=value, origin="default"))

    def was_given(self, key: str) -> bool:
        """Whether somebody wrote this key, with a usable value or not."""
        return key in self._found or key in self._unusable

    def has(self, *keys: str) -> bool:
        """Whether all these keys have a value."""
        return all(key in self._found for key in keys)

    def drop(self, key: str) -> None:
        """Forget a value."""
        self._found.pop(key, None)

    def find(self, key: str) -> Found | None:
        return self._found.get(key)

    def under(self, key: str) -> Iterator[tuple[str, Found]]:
        """The lines of a table: (name, value)."""
        prefix = f"{key}."
        return (
            (name.removeprefix(prefix), found)
            for name, found in self._found.items()
            if name.startswith(prefix)
        )

    def in_order(self) -> Iterator[tuple[str, Found]]:
        """Every value, in the order of the table of keys; the lines of a table by name."""
        for key in KEYS:
            if key.is_table:
                yield from ((f"{key.name}.{name}", found) for name, found in sorted(self.under(key.name)))
            elif (found := self.find(key.name)) is not None:
                yield key.name, found

    def text(self, key: str) -> str:
        return str(self._found[key].value)

    def optional_text(self, key: str) -> str | None:
        return self.text(key) if key in self._found else None

    def integer(self, key: str) -> int:
        value = self._found[key].value
        assert isinstance(value, int)
        return value

    def optional_integer(self, key: str) -> int | None:
        return self.integer(key) if key in self._found else None

    def optional_number(self, key: str) -> float | None:
        value = self._found[key].value if key in self._found else None
        assert value is None or isinstance(value, (int, float))
        return value

    def number(self, key: str) -> float:
        value = self.optional_number(key)
        assert value is not None
        return value

    def boolean(self, key: str) -> bool:
        return self._found[key].value is True

    def texts(self, key: str) -> tuple[str, ...]:
        value = self._found[key].value if key in self._found else []
        assert isinstance(value, list)
        return tuple(str(item) for item in value)

    def table(self, key: str) -> tuple[tuple[str, Json], ...]:
        return tuple(
            sorted(((name, found.value) for name, found in self.under(key)), key=lambda pair: pair[0])
        )

    def pairs(self, key: str) -> tuple[tuple[str, str], ...]:
        return tuple((name, str(value)) for name, value in self.table(key))


def gather(document: Document, overrides: Sequence[Override]) -> Values:
    """Read every key of the file, then the overrides, then the defaults that stand in the table."""
    values = Values()
    _read_table(values, document, document.root, "")
    written = values.find("model.name")
    for override in overrides:
        _read_override(values, override)
    if written is not None and values.has("model.name") and written.value != values.text("model.name"):
        _leave_out_facts_of(values)
    for key in KEYS:
        if key.default is not None:
            values.default(key.name, key.default)
        elif key.required and not values.was_given(key.name):
            example = f"add `{key.name.rsplit('.', 1)[-1]}:`"
            problem = Problem(key=key.name, problem="is missing", hint=example, file=document.file)
            values.refuse(key.name, problem)
    return values


def _read_table(values: Values, document: Document, table: Table, prefix: str) -> None:
    for entry in table.entries:
        name = f"{prefix}{entry.key}"
        key = find_key(name)
        if key is not None:
            _read_key(values, document, key, entry)
        elif any(known.name.startswith(f"{name}.") for known in KEYS):
            if isinstance(entry.value, Table):
                _read_table(values, document, entry.value, f"{name}.")
            else:
                _complain(values, document, name, entry.line, "must be a table of further keys")
        else:
            _complain(values, document, name, entry.line, "is not a known key", _nearest(name))


def _nearest(name: str) -> str | None:
    names = [key.name for key in KEYS]
    groups = {part for key in names for part in _prefixes(key)}
    return did_you_mean(name, [*names, *sorted(groups)])


def _prefixes(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[:count]) for count in range(1, len(parts)))


def _complain(
    values: Values, document: Document, key: str, line: int, problem: str, hint: str | None = None
) -> None:
    values.refuse(key, Problem(key=key, problem=problem, hint=hint, file=document.file, line=line))


def _read_key(values: Values, document: Document, key: Key, entry: Entry) -> None:
    if not key.is_table:
        _store(values, document, key.name, entry, _typed(key, entry.value))
        return
    if not isinstance(entry.value, Table):
        _complain(values, document, key.name, entry.line, f"must be a {key.kind.value}")
        return
    seen: dict[str, int] = {}
    for line in entry.value.entries:
        name = canonical(line.key) if key.kind is Kind.ARGUMENTS else line.key
        if name in seen:
            _complain(
                values,
                document,
                f"{key.name}.{line.key}",
                line.line,
                f"stands twice, first in line {seen[name]}",
            )
            continue
        seen[name] = line.line
        _store(values, document, f"{key.name}.{name}", line, _typed_line(key, line.value))


def _store(values: Values, document: Document, name: str, entry: Entry, typed: Json | _Wrong) -> None:
    if isinstance(typed, _Wrong):
        _complain(values, document, name, entry.line, typed.problem, typed.hint)
        return
    origin = f"{PurePath(document.file).name}:{entry.line}"
    values.put(name, Found(value=typed, origin=origin, file=document.file, line=entry.line))


@dataclass(frozen=True, kw_only=True)
class _Wrong:
    problem: str
    hint: str | None = None


def _typed_line(key: Key, value: Value) -> Json | _Wrong:
    """One line of a table: a flag's JSON value, or the text of a variable or label."""
    if key.kind is Kind.ARGUMENTS:
        return to_json(value)
    if not isinstance(value, Text):
        return _Wrong(problem="must be text")
    if value.plain and value.text in ("", "~", "null"):
        return _Wrong(problem="is empty", hint='write "" for an empty value')
    return value.text


def _typed(key: Key, value: Value) -> Json | _Wrong:
    if key.kind is Kind.TEXTS:
        if not isinstance(value, Items) or not all(isinstance(item, Text) for item in value.items):
            return _Wrong(problem="must be a list of text")
        return [item.text for item in value.items if isinstance(item, Text)]
    if not isinstance(value, Text):
        return _Wrong(
            problem=f"must be {_form(key)}, not a {'list' if isinstance(value, Items) else 'table'}"
        )
    if value.text == "" or (value.plain and value.text in ("~", "null")):
        return _Wrong(problem="is empty", hint="give a value, or remove the line for the default")
    if key.kind not in (Kind.TEXT, Kind.CHOICE) and not value.plain:
        return _Wrong(problem=f'must be {_form(key)}, not the text "{value.text}"', hint="remove the quotes")
    return _parse(key, value.text)


def _form(key: Key) -> str:
    if key.kind is Kind.CHOICE:
        return f"one of {', '.join(key.choices)}"
    return key.kind.value if key.kind in (Kind.TEXT, Kind.BOOLEAN) else f"a {key.kind.value}"


def _parse(key: Key, text: str) -> Json | _Wrong:
    """Text to the value of the key's kind, within its bounds."""
    if key.kind is Kind.TEXT:
        return text
    if key.kind is Kind.CHOICE:
        fits = text in key.choices
        return (
            text
            if fits
            else _Wrong(problem=f"must be {_form(key)}, not {text}", hint=did_you_mean(text, key.choices))
        )
    if key.kind is Kind.BOOLEAN:
        return text == "true" if text in ("true", "false") else _Wrong(problem="must be true or false")
    if key.kind is Kind.TEXTS:
        return list[Json](part.strip() for part in text.split(",") if part.strip())
    return _number(key, text)


def _number(key: Key, text: str) -> Json | _Wrong:
    pattern = _INTEGER if key.kind is Kind.INTEGER else _NUMBER
    if not pattern.fullmatch(text):
        return _Wrong(problem=f"must be {_form(key)}, not {text}", hint="write it in digits, without a unit")
    value = int(text) if key.kind is Kind.INTEGER else float(text)
    low = -math.inf if key.minimum is None else key.minimum
    high = math.inf if key.maximum is None else key.maximum
    if value < low:
        return _Wrong(problem=f"must be at least {low:g}, not {text}")
    if value > high:
        return _Wrong(problem=f"must be at most {high:g}, not {text}")
    return value


def _read_override(values: Values, override: Override) -> None:
    wrong = _override_value(values, override)
    if wrong is not None:
        shown = f"{override.key} ({override.origin})"
        values.refuse(override.key, Problem(key=shown, problem=wrong.problem, hint=wrong.hint))


def _leave_out_facts_of(values: Values) -> None:
    """Drop what the file says about its own model, for another one was asked for."""
    for key in KEYS:
        found = values.find(key.name)
        if key.of_model and found is not None and found.file is not None:
            values.drop(key.name)


def _override_value(values: Values, override: Override) -> _Wrong | None:
    if (found := control_character(override.value)) is not None:
        return _Wrong(problem=f"holds the control character {found}")
    key = find_key(override.key)
    name = override.key
    typed: Json | _Wrong
    if key is not None and not key.is_table:
        if override.value == "":
            return _Wrong(problem="is empty")
        typed = _parse(key, override.value)
    else:
        key = next((known for known in KEYS if known.is_table and name.startswith(f"{known.name}.")), None)
        if key is None:
            return _Wrong(problem="is not a known key", hint=_nearest(name))
        if key.kind is Kind.ARGUMENTS:
            name = f"{key.name}.{canonical(name.removeprefix(f'{key.name}.'))}"
            typed = _flag_value(name.removeprefix(f"{key.name}."), override.value)
        else:
            typed = override.value
    if isinstance(typed, _Wrong):
        return typed
    if name.startswith("engine.kv_cache."):
        _drop_other_kv_cache(values, name)
    values.put(name, Found(value=typed, origin=override.origin))
    return None


def _drop_other_kv_cache(values: Values, name: str) -> None:
    """An override of one size of the KV cache replaces those of the file."""
    for other in KV_CACHE_KEYS:
        if other != name:
            values.drop(other)


def _flag_value(name: str, text: str) -> Json | _Wrong:
    flag = find_flag(name)
    if flag is None or flag.form is Form.TEXT:
        return text
    if flag.form in (Form.BOOLEAN, Form.SWITCH):
        return text == "true" if text in ("true", "false") else _Wrong(problem="must be true or false")
    try:
        value: Json = json.loads(text)
    except ValueError as error:
        return _Wrong(problem=f"is not JSON: {error}")
    return value
