"""`warm check`: lint, formatting, types, and generated files up to date. Exit 1 when one fails."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence

from warmops import console
from warmops.pins import REPOSITORY

CHECKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("lint", ("ruff", "check", ".")),
    ("format", ("ruff", "format", "--check", ".")),
    ("types", ("mypy",)),
    ("generated files", ("warmops", "render", "--check")),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It takes none."""


def run(arguments: argparse.Namespace) -> int:
    results = {name: _run(module) for name, module in CHECKS}
    if arguments.json:
        print(json.dumps({name: code == 0 for name, code in results.items()}))
    else:
        print("; ".join(f"{name}: {'ok' if code == 0 else 'not ok'}" for name, code in results.items()))
    return 1 if any(results.values()) else 0


def _run(module: Sequence[str]) -> int:
    console.echo_command(f"python -m {' '.join(module)}")
    # Their findings go to stderr: stdout is the summary alone.
    command = [sys.executable, "-m", *module]
    return subprocess.run(command, cwd=REPOSITORY, stdout=sys.stderr, check=False).returncode
