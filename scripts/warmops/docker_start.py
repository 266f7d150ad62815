"""`warm docker-start`: an engine that answers, installed and started where there is none."""

from __future__ import annotations

import argparse

from warmops.host import ensure_docker


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--install-docker", choices=("yes", "no"), default="yes", help="install an engine if none"
    )


def run(arguments: argparse.Namespace) -> int:
    ensure_docker(install=arguments.install_docker == "yes")
    return 0
