"""`warm plan`: what one environment would run and the memory it needs.

In: the environment, its lock, and settings of the command line. Out: a table and a picture on stdout, or
the same facts as JSON; exit code 2 with the nearest plan that fits when it does not fit. It asks neither
Docker nor the network, so a laptop plans for a server.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from warmops.pins import REPOSITORY
from warmops.wishes import add_wishes, choose_environment, read_overrides
from warmplan import (
    Lock,
    Plan,
    Spec,
    bar_pieces,
    build_spec,
    meaning_lines,
    memory_facts,
    plan_stack,
    read_environment,
    read_lock,
    read_pins,
    size_columns,
)

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

GIB: Final = 1024**3
_COLOURS: Final = {
    "W": "white on dark_blue",
    "R": "white on blue",
    "M": "white on purple4",
    "K": "white on dark_green",
    "S": "black on dark_orange",
    "g": "black on yellow",
    "a": "black on gold3",
    "c": "white on grey37",
    "p": "white on grey37",
    "e": "white on grey50",
    "h": "black on grey70",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_wishes(parser)


def run(arguments: argparse.Namespace) -> int:
    spec, lock = _read(arguments)
    plan = _plan(spec, lock)
    if arguments.json:
        print(json.dumps(_facts(plan), indent=2, ensure_ascii=False))
    else:
        _show(plan, instead=lock.others(name=spec.model.name, revision=spec.model.revision))
    return 0


def read_plan(arguments: argparse.Namespace) -> Plan:
    """Plan an environment from its files alone; `cpu` unless one is named.

    Raises UserError (exit code 2) for a wrong environment, and for a plan that does not fit.
    """
    return _plan(*_read(arguments))


def _read(arguments: argparse.Namespace) -> tuple[Spec, Lock]:
    folder = choose_environment(arguments.env, lambda: False)
    overrides = read_overrides(arguments, directory=Path.cwd())
    spec = build_spec(environment=read_environment(folder), overrides=overrides)
    return spec, read_lock(folder / "lock.yaml")


def _plan(spec: Spec, lock: Lock) -> Plan:
    model = lock.find(name=spec.model.name, revision=spec.model.revision)
    return plan_stack(spec=spec, pins=read_pins(REPOSITORY / "compose/pins.yaml"), model=model)


def _facts(plan: Plan) -> dict[str, object]:
    return {
        "environment": plan.environment,
        "project": plan.project,
        "platform": plan.platform,
        "model": plan.model.name,
        "locked": plan.locked,
        "identity": plan.identity.value,
        "memory": memory_facts(plan.budget),
        "settings": {setting.key: [setting.value, setting.origin] for setting in plan.settings},
    }


def _show(plan: Plan, *, instead: tuple[str, ...]) -> None:
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{plan.environment}: {plan.model.name} with vLLM {plan.vllm_version} on {plan.platform}")
    if not plan.locked:
        lock = f"make lock ENV={plan.environment}"
        console.print(f"not locked: nobody has resolved this model yet ({lock})", markup=False)
    if instead:
        console.print(f"lock.yaml is of another model: {', '.join(instead)}", markup=False)
    console.print(_table(plan))
    console.print(_bar(plan))
    for line in meaning_lines(plan.budget):
        console.print(f"- {line}", markup=False)
    sys.stdout.flush()


def _table(plan: Plan) -> Table:
    from rich import box
    from rich.table import Table

    where = "on one GPU" if plan.platform == "cuda" else "on the host"
    table = Table(box=box.SIMPLE, show_footer=True)
    whole = all(part.known for part in plan.budget.parts)
    table.add_column(where, footer="sum" if whole else "sum of what is known")
    total = plan.budget.total_bytes
    table.add_column("GiB", justify="right", footer=f"{total / GIB:.2f}")
    table.add_column("bytes", justify="right", footer=str(total))
    for part in plan.budget.parts:
        table.add_row(part.name, *size_columns(part))
    return table


def _bar(plan: Plan) -> Text:
    """The bar and its legend, in colours where the terminal has them and in letters everywhere."""
    from rich.text import Text

    pieces = bar_pieces(plan.budget)
    text = Text("[")
    for piece in pieces:
        text.append(piece.letter * piece.width, style=_COLOURS.get(piece.letter, ""))
    text.append("]\n")
    text.append("\n".join(f"{piece.letter} {piece.name}: {piece.bytes / GIB:.2f} GiB" for piece in pieces))
    text.append("\n")
    return text
