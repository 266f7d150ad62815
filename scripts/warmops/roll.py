"""`roll`: a new engine with the settings of the environment as it is now, and no request refused on the way.

In: a project that is up. Out: the old engine replaced by way of a second one on the same weights; or the old
one serving as before, and why. Exit 1 unless the roll went through. One that did not end is taken up first.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from warmops.changes import ENGINE, SURGE, Changes
from warmops.console import failure, heading, say
from warmops.project import ROOT, Project, Remembered
from warmops.project_lock import alone
from warmops.proposal import Proposal, in_force, propose
from warmops.roll_run import (
    CannotRoll,
    Rolled,
    as_json,
    begin_roll,
    raise_unless_passed,
    require_roll,
    take_up,
)
from warmops.running import compare
from warmops.target import add_target, find_target
from warmops.up import judge_wish, make_plan, override_content, settings_to_remember, show_changes
from warmops.wanted import settings_of
from warmops.wishes import ENVIRONMENTS, add_settings, read_settings
from warmplan import Plan, Spec, read_pins


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    add_settings(parser)
    parser.add_argument(
        "--override", type=Path, metavar="FILE", help="another Compose file than that of the last `up`"
    )


def run(arguments: argparse.Namespace) -> int:
    project, settings = find_target(arguments)
    with alone(project, "roll"):
        proposal, plan, spec = _wish(project, settings, arguments)
        try:
            rolled = _roll(proposal, plan, spec)
        finally:
            proposal.discard()
    if arguments.json:
        print(json.dumps(as_json(rolled, project), indent=2, ensure_ascii=False))
    raise_unless_passed(rolled)
    seconds = rolled.steps[-1].ended_at - rolled.steps[0].begun_at if rolled.steps else 0.0
    say(f"rolled in {seconds:.0f} s; {rolled.cut or 'no'} requests were cut")
    return 0


def _wish(
    project: Project, settings: Remembered, arguments: argparse.Namespace
) -> tuple[Proposal, Plan, Spec]:
    """The environment as it is written now, with what the last `up` and this command line change in it."""
    folder = ENVIRONMENTS / settings.environment
    if not folder.is_dir():
        hint = "make up with ENV and the folder rolls to it as well"
        raise failure(f"there is no environment {settings.environment} here", hint, exit_code=2)
    remembered = {override.key: override for override in (*settings_of(settings), *read_settings(arguments))}
    overrides = tuple(remembered.values())
    spec = judge_wish(project.docker, folder, overrides)
    plan = make_plan(project.docker, spec, read_pins(ROOT / "compose" / "pins.yaml"), folder)
    given = override_content(arguments.override)
    wish = propose(
        project,
        plan,
        settings_to_remember(plan, spec, overrides),
        override=given if given is not None else in_force(project).override,
        folder=project.folder / "wish",
    )
    return wish, plan, spec


def _roll(proposal: Proposal, plan: Plan, spec: Spec) -> Rolled:
    project = proposal.project
    taken_up = take_up(project, proposal)
    if taken_up is not None and (not taken_up.passed or proposal.asks_the_same(in_force(project))):
        return taken_up
    changes = compare(proposal, plan)
    show_changes(changes)
    more = _more_than_an_engine(changes)
    if more is not None:
        hint = f"make up PROJECT={project.name} rolls the engine where it can, and changes the rest"
        return Rolled(outcome="refused", steps=(), error=f"no roll: {more}", hint=hint)
    try:
        require_roll(project, plan)
    except CannotRoll as reason:
        hint = f"make restart PROJECT={project.name} recycles the engine while the gateway holds requests"
        return Rolled(outcome="refused", steps=(), error=f"no roll: {reason}", hint=hint)
    heading("rolling; requests are answered all the time")
    return begin_roll(proposal, drain_seconds=spec.engine.drain_seconds, standby=spec.engine.standby)


def _more_than_an_engine(changes: Changes) -> str | None:
    """What else would have to change, in a sentence; None when only engines do."""
    for item in changes.items:
        engine = item.service == SURGE or (item.service == ENGINE and item.action == "recreate")
        if item.action != "keep" and not engine:
            return f"{item.service} would have to {item.action} too: {item.why}"
    return None
