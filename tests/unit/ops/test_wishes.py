"""What the command line asks for, with where it came from."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from warmops.wishes import ENVIRONMENTS, add_wishes, choose_environment, read_overrides
from warmplan.errors import UserError


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_wishes(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize(
    ("given", "nvidia", "folder"),
    [
        (None, False, ENVIRONMENTS / "cpu"),
        (None, True, ENVIRONMENTS / "gpu"),
        ("", True, ENVIRONMENTS / "gpu"),
        ("cpu", True, ENVIRONMENTS / "cpu"),
        ("gpu-tp2", False, ENVIRONMENTS / "gpu-tp2"),
        ("/a/folder", False, Path("/a/folder")),
    ],
)
def test_environment(given: str | None, nvidia: bool, folder: Path) -> None:
    assert choose_environment(given, lambda: nvidia) == folder


@pytest.mark.parametrize(
    ("words", "overrides"),
    [
        ((), []),
        (("--model", "Org/Name"), [("model.name", "Org/Name")]),
        (("--model", "./m"), [("model.name", "/here/m")]),
        (("--model", "../m"), [("model.name", "/m")]),
        (("--model", "/abs/m"), [("model.name", "/abs/m")]),
        (("--port", "81", "--webui-port", "82"), [("gateway.port", "81"), ("open_webui.port", "82")]),
        (("--project", "p"), [("project", "p")]),
        (("--set", "engine.on_miss=disk"), [("engine.on_miss", "disk")]),
        (("--set", "engine.environment.A=b=c"), [("engine.environment.A", "b=c")]),
        (("--model", "", "--port", ""), []),
    ],
)
def test_overrides(words: tuple[str, ...], overrides: list[tuple[str, str]]) -> None:
    found = read_overrides(parse(*words), directory=Path("/here"))
    assert [(override.key, override.value) for override in found] == overrides
    assert all("command line" in override.origin for override in found)


def test_an_exported_variable_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MODEL", "PORT", "PROJECT", "GPUS"):
        monkeypatch.setenv(name, "exported")
    assert read_overrides(parse(), directory=Path("/here")) == ()


def test_set_needs_a_value() -> None:
    with pytest.raises(UserError, match="not KEY=VALUE"):
        read_overrides(parse("--set", "engine.on_miss"), directory=Path("/here"))
