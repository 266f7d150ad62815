"""`warm docker-stop`: ends the engine that this program started by hand, and no other."""

from __future__ import annotations

import argparse

from warmops import console
from warmops.host_steps import stop_engine


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It takes none."""


def run(arguments: argparse.Namespace) -> int:
    console.say(
        "the engine has stopped"
        if stop_engine()
        else "no engine was started by this program: nothing to stop"
    )
    return 0
