"""The one program: `warm COMMAND …`.

In: the command line. Out: an exit code: 0 ok, 1 what was checked is not so, 2 wrong input, 3 docker or host
unusable. A UserError is printed bare; anything else is a bug and shows its traceback. Refuses to know what a
command does: each is a module with `add_arguments(parser)` and `run(arguments) -> int`, imported only when it
is the one asked for.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from warmplan.errors import Problem, UserError


class Command(NamedTuple):
    """A row of the table: name, module, and the sentence shown by `--help`."""

    name: str
    module: str
    sentence: str


COMMANDS = (
    Command("up", "warmops.up", "bring the stack up and say where to chat"),
    Command("roll", "warmops.roll", "replace the engine by way of a second one; no request is refused"),
    Command("restart", "warmops.restart", "recycle the engine and prove that it mapped the weights"),
    Command("drill", "warmops.drills", "rehearse failures, each with a declared expectation"),
    Command("load", "warmops.load", "load the gateway, let an event happen, and judge what clients felt"),
    Command("status", "warmops.status", "what runs, what is held, and what is wrong"),
    Command("logs", "warmops.logs", "follow the logs of the stack"),
    Command("down", "warmops.down", "stop the stack; the weights stay held unless --all"),
    Command("clean-compile", "warmops.clean_compile", "remove compiled kernels; the weights stay held"),
    Command("bench", "warmops.bench", "time stock restarts and warm restarts side by side"),
    Command("render", "warmops.render", "write the Compose files of the environments"),
    Command("plan", "warmops.plan", "print the plan of one environment"),
    Command("lock", "warmops.lock", "resolve the model of an environment and write its lock.yaml"),
    Command("explain", "warmops.explain", "why an engine would or would not map the weights that are held"),
    Command("verify", "warmops.verify", "compare the plan with what runs"),
    Command("doctor", "warmops.doctor", "check this host, each finding with its fix"),
    Command("bench-cli", "warmops.bench_cli", "time the commands that only look"),
    Command("images", "warmops.build", "build the images that are missing or changed"),
    Command("docker-start", "warmops.docker_start", "use the running engine, or install and start one"),
    Command("docker-stop", "warmops.docker_stop", "stop the engine that docker-start started by hand"),
    Command("check", "warmops.check", "lint, formatting, types, and rendered files up to date"),
    Command("test", "warmops.test", "run the tests that need no GPU"),
)


def build_parser(chosen: Command | None) -> argparse.ArgumentParser:
    """The parser with all commands' sentences, and the arguments of the chosen one alone."""
    parser = argparse.ArgumentParser(
        prog="warm",
        description="Keeps a model's weights in memory while everything around them restarts.",
        epilog="exit codes: 0 ok, 1 what was checked is not so, 2 wrong input, 3 docker or host unusable",
    )
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--json", action="store_true", help="facts as JSON on stdout")
    parser.add_argument("--json", action="store_true", dest="json_first", help="facts as JSON on stdout")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        sub = commands.add_parser(
            command.name, help=command.sentence, description=f"{command.sentence}.", parents=[shared]
        )
        if command is chosen:
            importlib.import_module(command.module).add_arguments(sub)
    return parser


def _as_asked(problem: Problem, parsed: argparse.Namespace) -> Problem:
    """The problem with a hint that can be pasted; the module is loaded for errors alone."""
    from warmops.wishes import complete

    return replace(problem, hint=complete(problem.hint, parsed))


def find_command(arguments: Sequence[str]) -> Command | None:
    """The command that a command line names; None when it names none or an unknown one."""
    name = next((word for word in arguments if not word.startswith("-")), None)
    return next((command for command in COMMANDS if command.name == name), None)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    parsed: argparse.Namespace | None = None
    try:
        chosen = find_command(words)
        parsed = build_parser(chosen).parse_args(words)
        parsed.json = parsed.json or parsed.json_first
        assert chosen is not None  # argparse has refused anything else
        code: int = importlib.import_module(chosen.module).run(parsed)
        return code
    except UserError as error:
        for problem in error.problems:
            print(problem if parsed is None else _as_asked(problem, parsed), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # `warm logs | head`: nobody reads any more, which is no error; nothing is left to flush into it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
