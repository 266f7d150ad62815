"""`bench-cli`: the commands that only look, each timed as a person starts it. Exit 1 when one is too slow.

In: an environment, and a project where one was brought up. Out: seconds of `render`, `plan`, `doctor` and
`verify` over several runs, as a table or JSON. What they find is none of its business: exit codes 0 and 1 are
both answers, any other makes the command count as not measured, which is a failure too.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from warmops.pins import REPOSITORY
from warmops.project import STATE, last_project, read_remembered
from warmops.table import print_table
from warmops.target import add_target
from warmops.units import seconds

LIMIT_SECONDS: Final = 1.0
_ANSWERS: Final = (0, 1)


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Runs of one command in seconds; `problem` when one of them ended with another code than an answer's."""

    command: str
    runs: tuple[float, ...]
    problem: str | None = None

    @property
    def median_seconds(self) -> float:
        return statistics.median(self.runs)

    @property
    def passed(self) -> bool:
        return self.problem is None and self.median_seconds < LIMIT_SECONDS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="runs of each command (5)")


def run(arguments: argparse.Namespace) -> int:
    project = arguments.project or last_project(arguments.env or None)
    settings = read_remembered(STATE / project) if project else None
    environment = arguments.env or (settings.environment if settings is not None else "cpu")
    lines = command_lines(environment, project if settings is not None else None)
    timings = [measure(line, repeat=max(1, arguments.repeat)) for line in lines]
    if arguments.json:
        print(
            json.dumps(
                {"limit_seconds": LIMIT_SECONDS, "commands": [_facts(one) for one in timings]}, indent=2
            )
        )
    else:
        _show(timings)
        if settings is None:
            print("verify: not measured, nothing has been brought up here")
    return 0 if all(one.passed for one in timings) else 1


def command_lines(environment: str, project: str | None) -> list[tuple[str, ...]]:
    """The commands to time; `verify` needs a project that was brought up."""
    wish = ("--env", environment)
    verify = [("verify", "--project", project)] if project is not None else []
    return [("render", *wish, "--check"), ("plan", *wish), ("doctor", *wish), *verify]


def measure(line: Sequence[str], *, repeat: int, program: str = str(REPOSITORY / "scripts/warm")) -> Timing:
    """Run a command line several times, one after the other, as a process of its own each time."""
    runs: list[float] = []
    problem = None
    for _ in range(repeat):
        begun = time.perf_counter()
        done = subprocess.run([program, *line], cwd=REPOSITORY, capture_output=True, text=True, check=False)
        runs.append(time.perf_counter() - begun)
        if done.returncode not in _ANSWERS:
            said = done.stderr.strip().splitlines()
            problem = f"exit code {done.returncode}: {said[0] if said else 'no message'}"
            break
    return Timing(command=" ".join(line), runs=tuple(runs), problem=problem)


def _facts(timing: Timing) -> dict[str, object]:
    return {
        "command": timing.command,
        "median_seconds": round(timing.median_seconds, 3),
        "runs_seconds": [round(value, 3) for value in timing.runs],
        "passed": timing.passed,
        "problem": timing.problem,
    }


def _show(timings: Sequence[Timing]) -> None:
    rows = [
        (
            one.command,
            seconds(one.median_seconds),
            seconds(min(one.runs)),
            seconds(max(one.runs)),
            one.problem or ("ok" if one.passed else f"over {LIMIT_SECONDS:g} s"),
        )
        for one in timings
    ]
    print_table(("command", "median", "best", "worst", ""), rows)
