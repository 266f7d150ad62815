"""A hint repeats what was given, so that it means the same when it is pasted."""

from __future__ import annotations

import argparse

import pytest

from warmops.wishes import complete

GIVEN = {"env": "gpu", "project": "p", "port": None, "webui_port": "3001", "model": "/a b"}


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        ("make up", "make up ENV=gpu MODEL='/a b' WEBUI_PORT=3001 PROJECT=p"),
        (
            "make up REPLACE_WEIGHTS=yes, or other ports",
            "make up ENV=gpu MODEL='/a b' WEBUI_PORT=3001 PROJECT=p REPLACE_WEIGHTS=yes, or other ports",
        ),
        ("another: make up WEBUI_PORT=4", "another: make up ENV=gpu MODEL='/a b' PROJECT=p WEBUI_PORT=4"),
        ("fetch it: make lock", "fetch it: make lock ENV=gpu"),
        ("make update", "make update"),
        ("install something", "install something"),
        (None, None),
    ],
)  # fmt: skip
def test_make_lines_in_hints(hint: str | None, expected: str | None) -> None:
    assert complete(hint, argparse.Namespace(**GIVEN)) == expected


def test_a_command_without_these_options_changes_nothing() -> None:
    assert complete("make up PROJECT=p", argparse.Namespace(command="status")) == "make up PROJECT=p"
