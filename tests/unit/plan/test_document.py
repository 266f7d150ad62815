"""YAML with lines, taken as typed."""

import pytest

from warmplan import UserError
from warmplan.document import Text, parse_document, to_json

TYPED_AS_IS = [
    "no",
    "yes",
    "on",
    "012",
    "0x10",
    "12:34",
    "1.10",
    "2024-01-01",
    "1e3",
    "~x",
    "a: b",
    "a #b",
    "é😀",
]


@pytest.mark.parametrize("typed", TYPED_AS_IS)
def test_scalars_keep_their_characters(typed: str) -> None:
    for text in ([f"key: {typed}"] if ": " not in typed and " #" not in typed else []) + [f'key: "{typed}"']:
        entry = parse_document(text, file="f").root.get("key")
        assert entry is not None
        assert isinstance(entry.value, Text)
        assert entry.value.text == typed


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("true", True),
        ("no", "no"),
        ("null", None),
        ("1", 1),
        ("-3", -3),
        ("012", "012"),
        ("12:34", "12:34"),
        ("1.5", 1.5),
        ("1e-5", 1e-5),
        ('"1"', "1"),
        ("[1, a, {b: true}]", [1, "a", {"b": True}]),
    ],
)
def test_json_values(typed: str, expected: object) -> None:
    entry = parse_document(f"key: {typed}", file="f").root.get("key")
    assert entry is not None
    value = to_json(entry.value)
    assert value == expected
    assert type(value) is type(expected)


def test_every_key_knows_its_line() -> None:
    root = parse_document("# comment\na: 1\n\nb:\n  c: 2\n", file="f").root
    assert [(entry.key, entry.line) for entry in root.entries] == [("a", 2), ("b", 4)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nb: 2\na: 3", "error: f:3: a: stands twice, first in line 1\nhint: keep one of the two"),
        ("a:\n  b: 1\n  b: 2", "error: f:3: a.b: stands twice, first in line 2\nhint: keep one of the two"),
        ("a: 1\nb: x\x07y", "error: f:2: holds the control character U+0007"),
        ('a: "x\\x07y"', "error: f:1: a: holds the control character U+0007"),
        ('a: "x\\ud800y"', "error: f:1: a: holds the control character U+D800"),
        ("a: x\x85y", "error: f:1: holds the control character U+0085"),
        ("a: &x [1]\nb: *x", "error: f:2: aliases (`*name`) are not supported"),
        ("a: !!python/name:os.system x\nb: !t [1]", "error: f:2: b: has the tag !t; tags are not supported"),
        ("a: [1\nb: 2", "error: f:2: is not valid YAML"),
        ("- a", "error: f:1: must be a table of `key: value` lines"),
        ("a: 1\n---\nb: 2", "error: f:2: is not valid YAML"),
    ],
)
def test_what_is_refused_names_file_and_line(text: str, expected: str) -> None:
    with pytest.raises(UserError) as raised:
        parse_document(text, file="f")
    assert expected in str(raised.value)


def test_two_problems_are_said_at_once() -> None:
    with pytest.raises(UserError) as raised:
        parse_document('a: "\\x01"\nb: 1\nb: 2\n', file="f")
    assert [problem.line for problem in raised.value.problems] == [1, 3]


def test_a_tab_before_a_key_gets_a_hint() -> None:
    with pytest.raises(UserError) as raised:
        parse_document("model:\n\tname: x\n", file="environment.yaml")
    (problem,) = raised.value.problems
    assert (problem.line, problem.hint) == (2, "indent with blanks")
