"""Values reach the file and come back unchanged (case 2)."""

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from warmplan.quoting import quoted

CLEAN = st.text(st.characters(exclude_categories=("Cc", "Cs")) | st.sampled_from("\t\n${}'\"\\#: "))


def read(text: str) -> object:
    """YAML, then Compose's `$$`."""
    value = yaml.safe_load(f"key: {text}")["key"]
    assert isinstance(value, str)
    return value.replace("$$", "$")


@given(CLEAN)
@example("${X}")
@example("$$${{X}}")
@example("NO")
@example("012")
@example("1e3")
@example("\u2028\ufeff\U0001f600")
@example('{"a": "$x"}')
@example("'\"${")
def test_round_trip(value: str) -> None:
    text = quoted(value)
    assert read(text) == value
    assert "${" not in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("no", '"no"'),
        ("", '""'),
        (8000, '"8000"'),
        ("VLLM_CACHE_ROOT", "VLLM_CACHE_ROOT"),
        ("OFF", '"OFF"'),
        ("a$b", '"a$$b"'),
        ("${X}", '"$$\\x7bX}"'),
        ('{"a": 1}', "'{\"a\": 1}'"),
    ],
)
def test_known(value: str | int, expected: str) -> None:
    assert quoted(value) == expected


@pytest.mark.parametrize("value", ["\x00", "\x1b[0m", "\x7f", "\x85", "\ud800"])
def test_control_characters_are_a_bug_by_then(value: str) -> None:
    with pytest.raises(ValueError, match="control character"):
        quoted(value)
