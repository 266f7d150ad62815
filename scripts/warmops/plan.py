"""`warm plan`: what one environment would run and the memory it needs, for a person, on stdout."""

from __future__ import annotations

import argparse
import json

from warmops.render import ENVIRONMENTS, render_environment


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--env", default="cpu", help="the environment (cpu)")


def run(arguments: argparse.Namespace) -> int:
    _, plan = render_environment(ENVIRONMENTS / arguments.env)
    print(json.dumps({"environment": arguments.env, "plan": plan.wanted}) if arguments.json else plan.wanted)
    return 0
