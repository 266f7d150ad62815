"""YAML text read so that every value knows its line and nothing is guessed.

In: the text of a file and its name. Out: a tree of `Text`, `Items` and `Table`. A scalar keeps the characters
that were typed (`no`, `012`, `12:34` stay what they are); the reader of a key decides what they mean.
Refused, with file and line: control characters, duplicate keys, aliases, tags, keys that are not text, more
than one document. It does not know which keys exist.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from warmplan.errors import Problem, UserError

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

_INTEGER: Final = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_STANDARD_TAGS: Final = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:seq", "tag:yaml.org,2002:map")


@dataclass(frozen=True, kw_only=True)
class Text:
    """A scalar as typed; `plain` when it stood without quotes: `true` and `"true"` are told apart."""

    text: str
    plain: bool
    line: int


@dataclass(frozen=True, kw_only=True)
class Items:
    """A list."""

    items: tuple[Value, ...]
    line: int


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One key of a table with the line of the key."""

    key: str
    value: Value
    line: int


@dataclass(frozen=True, kw_only=True)
class Table:
    """A mapping whose keys are text and unique, in the order of the file."""

    entries: tuple[Entry, ...]
    line: int

    def get(self, key: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.key == key), None)


Value = Text | Items | Table


@dataclass(frozen=True, kw_only=True)
class Document:
    """A file's table; `file` is the name to show in messages."""

    file: str
    root: Table


def control_character(text: str) -> str | None:
    """The first character that must not reach a container (`U+0007`), or None. Tab and newline may."""
    for character in text:
        if character not in "\t\n" and unicodedata.category(character) in ("Cc", "Cs"):
            return f"U+{ord(character):04X}"
    return None


def read_document(path: Path, *, shown_as: str | None = None) -> Document:
    """Read a YAML file.

    Errors: `UserError` (exit code 2) with every problem found, each with its line.
    """
    file = shown_as or str(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(Problem(key=file, problem=f"cannot be read: {error.strerror}")) from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problem = Problem(key="", problem="is not UTF-8 text", file=file, line=line)
        raise UserError(problem) from error
    return parse_document(text, file=file)


def parse_document(text: str, *, file: str) -> Document:
    """Read YAML text; an empty one is an empty table. Errors as for `read_document`."""
    _refuse_control_characters(text, file=file)
    try:
        _refuse_aliases(text, file=file)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise UserError(_syntax_problem(error, file=file)) from error
    if node is None:
        return Document(file=file, root=Table(entries=(), line=1))
    reader = _Reader(file)
    value = reader.value(node, "")
    if not isinstance(value, Table):
        reader.add("", "must be a table of `key: value` lines", value.line)
    if reader.problems or not isinstance(value, Table):
        raise UserError(reader.problems)
    return Document(file=file, root=value)


def to_json(value: Value) -> Json:
    """The value as JSON. Plain scalars follow YAML 1.2: `true`, `null`, `1`, `1.5`; the rest is text."""
    if isinstance(value, Items):
        return [to_json(item) for item in value.items]
    if isinstance(value, Table):
        return {entry.key: to_json(entry.value) for entry in value.entries}
    return _plain(value.text) if value.plain else value.text


def _plain(text: str) -> Json:
    if text in ("true", "false"):
        return text == "true"
    if text in ("null", "~", ""):
        return None
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


def _refuse_control_characters(text: str, *, file: str) -> None:
    problems = [
        Problem(
            key="", problem=f"holds the control character {found}", hint=_CONTROL_HINT, file=file, line=line
        )
        for line, content in enumerate(text.split("\n"), start=1)
        if (found := control_character(content.removesuffix("\r"))) is not None
    ]
    if problems:
        raise UserError(problems)


_CONTROL_HINT: Final = "remove it; only tab and newline are allowed"


def _refuse_aliases(text: str, *, file: str) -> None:
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            mark = event.start_mark
            line = mark.line + 1 if mark is not None else None
            sentence = "aliases (`*name`) are not supported"
            raise UserError(
                Problem(key="", problem=sentence, hint="write the value out", file=file, line=line)
            )


def _syntax_problem(error: yaml.YAMLError, *, file: str) -> Problem:
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    what = error.problem if isinstance(error, yaml.MarkedYAMLError) else None
    line = mark.line + 1 if mark is not None else None
    hint = "indent with blanks" if what is not None and "'\\t'" in what else None
    return Problem(key="", problem=f"is not valid YAML: {what or error}", hint=hint, file=file, line=line)


def _joined_surrogates(text: str) -> str:
    """JSON writes an emoji as two escapes and PyYAML keeps the halves; a half alone stays, to be refused."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


class _Reader:
    """Turns PyYAML's nodes into values and collects what is wrong on the way."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []

    def add(self, key: str, problem: str, line: int, hint: str | None = None) -> None:
        self.problems.append(Problem(key=key, problem=problem, hint=hint, file=self.file, line=line))

    def value(self, node: Node, key: str) -> Value:
        line = node.start_mark.line + 1
        if isinstance(node, SequenceNode):
            self._check_tag(node, key, line)
            items = tuple(self.value(item, f"{key}[{index}]") for index, item in enumerate(node.value))
            return Items(items=items, line=line)
        if isinstance(node, MappingNode):
            self._check_tag(node, key, line)
            return self._table(node, key, line)
        assert isinstance(node, ScalarNode)
        plain = node.style is None
        if not plain:
            self._check_tag(node, key, line)
        text = _joined_surrogates(node.value)
        found = control_character(text)
        if found is not None:
            self.add(key, f"holds the control character {found}", line, _CONTROL_HINT)
        return Text(text=text, plain=plain, line=line)

    def _check_tag(self, node: Node, key: str, line: int) -> None:
        if node.tag not in _STANDARD_TAGS:
            self.add(key, f"has the tag {node.tag}; tags are not supported", line)

    def _table(self, node: MappingNode, prefix: str, line: int) -> Table:
        entries: dict[str, Entry] = {}
        for key_node, value_node in node.value:
            key_line = key_node.start_mark.line + 1
            if not isinstance(key_node, ScalarNode):
                self.add(prefix, "has a key that is not text", key_line)
                continue
            name: str = key_node.value
            path = f"{prefix}.{name}" if prefix else name
            if name in entries:
                first = entries[name].line
                self.add(path, f"stands twice, first in line {first}", key_line, "keep one of the two")
                continue
            entries[name] = Entry(key=name, value=self.value(value_node, path), line=key_line)
        return Table(entries=tuple(entries.values()), line=line)
