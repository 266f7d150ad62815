"""What a person asked of `up`: the environment and the settings that win over its file.

In: parsed arguments of `up`. Out: the environment's folder and overrides with their origin. Nothing else is
read: a variable exported in a shell changes nothing (docs: a make-line variable wins and `up` says so).
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path

from warmops.console import failure
from warmops.project import ROOT
from warmplan.spec import Override

ENVIRONMENTS = ROOT / "compose" / "environments"
# Option, make variable, key of environment.yaml.
_SHORTHANDS = (
    ("model", "MODEL", "model.name"),
    ("port", "PORT", "gateway.port"),
    ("webui_port", "WEBUI_PORT", "open_webui.port"),
    ("project", "PROJECT", "project"),
)
_MAKE_LINE = re.compile(r"\b(make (?:up|lock))\b((?: [A-Z_]+=[^\s,;]+)*)")


def add_wishes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--env", metavar="NAME", help="environment; default: gpu where NVIDIA works, else cpu"
    )
    parser.add_argument("--model", metavar="MODEL", help="Org/Name on the hub, or a local folder")
    parser.add_argument("--port", metavar="N", help="port of the API")
    parser.add_argument("--webui-port", metavar="N", help="port of the chat page")
    parser.add_argument("--project", metavar="NAME", help="name of the Compose project")
    add_settings(parser)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """The option for any key."""
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="any key of environment.yaml; repeatable",
    )


def choose_environment(given: str | None, nvidia_is_usable: Callable[[], bool]) -> Path:
    """Folder of the environment: the one given (a name or a folder), else by what the host has."""
    name = given or ("gpu" if nvidia_is_usable() else "cpu")
    return Path(name) if "/" in name else ENVIRONMENTS / name


def read_overrides(arguments: argparse.Namespace, *, directory: Path) -> tuple[Override, ...]:
    """Overrides in the order in which they win. `directory` is where a relative model folder starts."""
    overrides = []
    for option, variable, key in _SHORTHANDS:
        value = getattr(arguments, option)
        if value:
            text = _absolute(value, directory) if key == "model.name" else str(value)
            overrides.append(Override(key=key, value=text, origin=f"{variable} of the command line"))
    return (*overrides, *read_settings(arguments))


def read_settings(arguments: argparse.Namespace) -> tuple[Override, ...]:
    """What `--set` says, in the order in which it wins."""
    overrides = []
    for item in arguments.set:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise failure(
                f"--set {item}: not KEY=VALUE", "for instance --set engine.max_num_seqs=4", exit_code=2
            )
        overrides.append(Override(key=key.strip(), value=value, origin="--set of the command line"))
    return tuple(overrides)


def complete(hint: str | None, arguments: argparse.Namespace) -> str | None:
    """A hint whose `make up` or `make lock` repeats what was given, so that it means the same when pasted."""
    if hint is None:
        return None
    return _MAKE_LINE.sub(lambda line: _with_given(line[1], line[2], arguments), hint)


def _with_given(command: str, variables: str, arguments: argparse.Namespace) -> str:
    given = [("ENV", "env")]
    if command == "make up":
        given += [(variable, option) for option, variable, _ in _SHORTHANDS]
    values = [(variable, getattr(arguments, option, None)) for variable, option in given]
    more = [
        f"{name}={shlex.quote(value)}" for name, value in values if value and f" {name}=" not in variables
    ]
    return " ".join((command, *more)) + variables


def _absolute(model: str, directory: Path) -> str:
    """A model that is written as a path becomes an absolute one; `Org/Name` stays what it is."""
    if model.startswith("~"):
        return str(Path(model).expanduser())
    if model.startswith(("/", "./", "../")) or model in (".", ".."):
        return os.path.normpath(directory / model)
    return model
