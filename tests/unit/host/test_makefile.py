"""What the Makefile hands to `scripts/warm`: the real make, in a checkout with a fake command."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
WARM = """#!/bin/sh
for word; do printf '%s\\0' "$word"; done >"$(dirname "$0")/words"
env >"$(dirname "$0")/environment"
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copy(ROOT / "scripts/nearest", tmp_path / "scripts")
    (tmp_path / "scripts/warm").write_text(WARM)
    (tmp_path / "scripts/warm").chmod(0o755)
    return tmp_path


def make(checkout: Path, *words: str, **exported: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], **exported}
    return subprocess.run(
        ["make", *words], cwd=checkout, env=environment, capture_output=True, text=True, check=False
    )


def handed_over(checkout: Path, *words: str, **exported: str) -> list[str]:
    done = make(checkout, *words, **exported)
    assert done.returncode == 0, done.stderr
    return (checkout / "scripts/words").read_text().split("\0")[:-1]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["up"], ["up"]),
        (["up", "MODEL=Org/Name.With-Caps"], ["up", "--model", "Org/Name.With-Caps"]),
        (
            ["up", "ENV=gpu", "PORT=8001", "WEBUI_PORT=3001", "PROJECT=p", "INSTALL_DOCKER=no"],
            [
                "up",
                "--project",
                "p",
                "--env",
                "gpu",
                "--port",
                "8001",
                "--webui-port",
                "3001",
                "--install-docker",
                "no",
            ],
        ),
        (["up", "REPLACE_WEIGHTS=yes"], ["up", "--replace-weights"]),
        (["up", "REPLACE_WEIGHTS=no"], ["up"]),
        (["up", "REPLACE_WEIGHTS="], ["up"]),
        (["drill", "DRILL=engine-kill", "REPEAT=5"], ["drill", "--drill", "engine-kill", "--repeat", "5"]),
        (
            ["load", "EVENT=kill", "CLIENTS=4", "SECONDS=30", "REPEAT=3"],
            ["load", "--event", "kill", "--clients", "4", "--seconds", "30", "--repeat", "3"],
        ),
        (["restart", "PROJECT=p"], ["restart", "--project", "p"]),
        (["roll", "PROJECT=p", "OVERRIDE=o"], ["roll", "--project", "p", "--override", "o"]),
        (["lock", "ENV=gpu", "OFFLINE=yes"], ["lock", "--env", "gpu", "--offline"]),
        (["explain", "PROJECT=p", "MODEL=m"], ["explain", "--project", "p", "--model", "m"]),
        (["verify", "PROJECT=p"], ["verify", "--project", "p"]),
        (["doctor", "ENV=gpu"], ["doctor", "--env", "gpu"]),
        (["bench-cli", "REPEAT=3"], ["bench-cli", "--repeat", "3"]),
        (["down"], ["down"]),
        (["down-all"], ["down", "--all"]),
        (["test"], ["--test", "test"]),
        (["test", "LEVEL=unit"], ["--test", "test", "--level", "unit"]),
        (["check"], ["--test", "check"]),
    ],
)
def test_make_line(checkout: Path, line: list[str], words: list[str]) -> None:
    assert handed_over(checkout, *line) == words


@pytest.mark.parametrize(
    "value", ["a b", "it's", 'say "x"', "$HOME", "`id`", "a;b", "a\\b", "x|y&z", "*", "é", "-x"]
)
def test_a_value_arrives_as_it_was_typed(checkout: Path, value: str) -> None:
    assert handed_over(checkout, "up", f"MODEL={value}") == ["up", "--model", value]


def test_exported_variables_do_not_act(checkout: Path) -> None:
    exported = dict.fromkeys(
        (
            "MODEL",
            "ENV",
            "PORT",
            "WEBUI_PORT",
            "PROJECT",
            "REPLACE_WEIGHTS",
            "INSTALL_DOCKER",
            "DRILL",
            "REPEAT",
        ),
        "9",
    )
    assert handed_over(checkout, "up", **exported) == ["up"]
    assert handed_over(checkout, "drill", **exported) == ["drill"]
    assert handed_over(checkout, "-e", "up", **exported) == ["up"]


def test_the_make_line_wins_over_an_exported_variable(checkout: Path) -> None:
    assert handed_over(checkout, "up", "PORT=1", PORT="2") == ["up", "--port", "1"]


def test_variables_reach_the_command_as_options_alone(checkout: Path) -> None:
    handed_over(checkout, "up", "MODEL=m", "PYTHON=python3.12")
    environment = (checkout / "scripts/environment").read_text().splitlines()
    assert not [line for line in environment if line.startswith("MODEL=")]
    assert "PYTHON=python3.12" in environment


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ("MODLE", " (did you mean MODEL?)"),
        ("port", " (did you mean PORT?)"),
        ("REPLACE_WEIGHT", " (did you mean REPLACE_WEIGHTS?)"),
        ("it's", ""),
    ],
)
def test_a_misspelt_variable_is_refused_before_anything_runs(
    checkout: Path, given: str, nearest: str
) -> None:
    done = make(checkout, "up", f"{given}=x")
    assert done.returncode == 2
    assert f"{given}: not a variable of this project{nearest}; there are MODEL" in done.stderr
    assert not (checkout / "scripts/words").exists()


@pytest.mark.parametrize("value", ["banana", "true", "1", "Yes", "0", "yes no"])
@pytest.mark.parametrize(
    ("target", "name"), [("up", "REPLACE_WEIGHTS"), ("down-all", "VOLUMES"), ("lock", "OFFLINE")]
)
def test_a_switch_is_yes_or_no(checkout: Path, target: str, name: str, value: str) -> None:
    done = make(checkout, target, f"{name}={value}")
    assert done.returncode == 2
    assert f"{name}={value}: say yes or no" in done.stderr
    assert not (checkout / "scripts/words").exists()


def test_an_unknown_target_points_to_help(checkout: Path) -> None:
    done = make(checkout, "stauts")
    assert done.returncode == 2
    said = "error: there is no target stauts (did you mean status?)\nhint: make help lists them\n"
    assert done.stderr.startswith(said)


def test_a_word_that_is_no_target_is_repeated_as_it_was_typed(checkout: Path) -> None:
    said = make(checkout, "a\"b'c `id`").stderr
    assert said.startswith("error: there is no target a\"b'c `id`\nhint: ")


def test_the_exit_code_is_told(checkout: Path) -> None:
    (checkout / "scripts/warm").write_text("#!/bin/sh\nexit 3\n")
    done = make(checkout, "up")
    assert done.returncode == 2  # make's own
    assert "Error 3" in done.stderr


def test_help_is_the_default_and_names_every_target(checkout: Path) -> None:
    phony = next(
        line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith("targets :=")
    )
    shown = [line.split()[1] for line in make(checkout).stdout.splitlines() if line.startswith("  make ")]
    assert sorted(shown) == sorted(phony.split()[2:]), json.dumps(shown)
