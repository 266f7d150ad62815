"""Project names that Compose accepts (case 1)."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmplan.names import project_name

COMPOSE = re.compile(r"[a-z0-9][a-z0-9_-]*")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("warmstack-cpu", "warmstack-cpu"),
        ("Org/Name.With-Caps", "org-name-with-caps-ba747011"),
        ("qwen3-0.6b", "qwen3-0-6b-b4bd4e9e"),
        ("_x", "x-a01e47cb"),
        ("模型", "p-c98e118e"),
        ("", "p-e3b0c442"),
    ],
)
def test_known_names(text: str, expected: str) -> None:
    assert project_name(text) == expected


def test_long_name_keeps_its_head() -> None:
    name = project_name("a" * 200)
    assert name.startswith("aaaa")
    assert len(name) == 40


def test_names_that_look_alike_differ() -> None:
    names = ["A/b.c", "a/b-c", "a-b-c", "A/b-c", project_name("A/b.c")]
    assert len({project_name(name) for name in names}) == len(names)


@given(st.text(max_size=200))
def test_any_text_gives_a_valid_name(text: str) -> None:
    name = project_name(text)
    assert COMPOSE.fullmatch(name)
    assert len(name) <= 40


@given(st.text(max_size=60), st.text(max_size=60))
def test_different_texts_give_different_names(first: str, second: str) -> None:
    assert (project_name(first) == project_name(second)) == (first == second)
