"""`warm images`: builds the images that are missing or changed."""

from __future__ import annotations

import argparse
import json

from warmops import console
from warmops.docker import Docker
from warmops.host import ensure_docker
from warmops.image_build import ensure_images


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--platform", choices=("cpu", "cuda"), default="cpu", help="which vLLM to build for (cpu)"
    )
    parser.add_argument("--force", action="store_true", help="build all, whether they changed or not")
    parser.add_argument(
        "--install-docker", choices=("yes", "no"), default="yes", help="install an engine if none"
    )


def run(arguments: argparse.Namespace) -> int:
    ensure_docker(install=arguments.install_docker == "yes")
    built = ensure_images(Docker(), arguments.platform, force=arguments.force)
    if arguments.json:
        print(json.dumps([{"image": one.tag, "seconds": one.seconds} for one in built]))
        return 0
    for one in built:
        print(f"{one.tag}: {'up to date' if one.seconds is None else f'built in {one.seconds:.0f} s'}")
    if all(one.seconds is None for one in built):
        console.say("nothing to build")
    return 0
