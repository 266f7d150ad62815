"""The program's surface: errors, exit codes, and a command's module is loaded only when asked for."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import types

import pytest

from warmops import cli
from warmplan.errors import Problem, UserError


def module(run: object) -> types.ModuleType:
    made = types.ModuleType("made")
    made.add_arguments = lambda parser: parser.add_argument("--port", type=int)  # type: ignore[attr-defined]
    made.run = run  # type: ignore[attr-defined]
    return made


def call(monkeypatch: pytest.MonkeyPatch, run: object, *words: str) -> int:
    monkeypatch.setitem(sys.modules, "warmops.status", module(run))
    return cli.main(["status", *words])


def test_a_user_error_is_shown_bare(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(arguments: argparse.Namespace) -> int:
        raise UserError(
            [
                Problem(
                    key="gpu.count",
                    problem="3 does not divide 4",
                    hint="use 1, 2 or 4",
                    file="e.yaml",
                    line=12,
                ),
                Problem(key="", problem="no engine"),
            ],
            exit_code=3,
        )

    assert call(monkeypatch, run) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "error: e.yaml:12: gpu.count: 3 does not divide 4\nhint: use 1, 2 or 4\nerror: no engine\n"


def test_a_bug_shows_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(arguments: argparse.Namespace) -> int:
        raise KeyError("x")

    with pytest.raises(KeyError):
        call(monkeypatch, run)


@pytest.mark.parametrize("code", [0, 1, 2, 3])
def test_the_exit_code_is_the_commands(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    assert call(monkeypatch, lambda arguments: code) == code


@pytest.mark.parametrize(
    ("words", "expected"),
    [([], (False, None)), (["--json"], (True, None)), (["--port", "1", "--json"], (True, 1))],
)
def test_arguments(
    monkeypatch: pytest.MonkeyPatch, words: list[str], expected: tuple[bool, int | None]
) -> None:
    seen: list[tuple[bool, int | None]] = []

    def run(arguments: argparse.Namespace) -> int:
        seen.append((arguments.json, arguments.port))
        return 0

    call(monkeypatch, run, *words)
    assert seen == [expected]


def test_json_may_stand_before_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "warmops.status", module(lambda arguments: int(arguments.json)))
    assert cli.main(["--json", "status"]) == 1


@pytest.mark.parametrize("words", [["nope"], [], ["status", "--nope"]])
def test_wrong_words_are_wrong_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, "warmops.status", module(lambda arguments: 0))
    with pytest.raises(SystemExit) as caught:
        cli.main(words)
    assert caught.value.code == 2
    assert "usage: warm" in capsys.readouterr().err


@pytest.mark.parametrize("command", cli.COMMANDS, ids=lambda command: command.name)
def test_every_command_of_the_table_has_a_module_with_help(
    command: cli.Command, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main([command.name, "--help"])
    assert caught.value.code == 0
    assert "usage: warm" in capsys.readouterr().out


def test_help_loads_no_commands_module() -> None:
    script = (
        "import sys; from warmops import cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "print([name for name in sys.modules if name.startswith('warmops.')], file=sys.stderr)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert done.stderr.strip() == "['warmops.cli']"
