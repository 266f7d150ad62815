"""`warm test`: everything that the tests need, then pytest.

In: the level and words for pytest. Out: pytest's own output, its last line last, and its exit code. The
levels that use containers get an engine and the images first, the browser level Chromium.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys

from warmops import console, host_steps
from warmops.docker import Docker
from warmops.host import ensure_docker
from warmops.images import ensure_images
from warmops.pins import REPOSITORY

LEVELS = ("unit", "docker", "browser", "long", "gpu", "all")
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--level", choices=LEVELS, default="all", help="all: every level but long and gpu (all)"
    )
    parser.add_argument(
        "--install-docker", choices=("yes", "no"), default="yes", help="install what is missing"
    )
    parser.add_argument("pytest", nargs="*", help="words for pytest, after --")


def run(arguments: argparse.Namespace) -> int:
    if arguments.level in ("docker", "browser", "long", "all"):
        ensure_docker(install=arguments.install_docker == "yes")
        ensure_images(Docker(), "cpu")
    if arguments.level in ("browser", "all"):
        _ensure_browser(install=arguments.install_docker == "yes")
    own = ("--own-host",) if os.geteuid() == 0 and host_steps.engine_is_ours() else ()
    command = [sys.executable, "-m", "pytest", "--level", arguments.level, *own, *arguments.pytest]
    console.echo_command(f"python -m {' '.join(command[2:])}")
    return subprocess.run(command, cwd=REPOSITORY, check=False).returncode


def _ensure_browser(*, install: bool) -> None:
    """Chromium from the distribution: Playwright's own download is left alone."""
    if any(shutil.which(name) for name in _BROWSERS):
        return
    if not install or os.geteuid() != 0 or not host_steps.has_apt():
        raise console.failure(
            "the browser level needs Chromium",
            "install chromium, or run another level: make test LEVEL=docker",
            exit_code=3,
        )
    host_steps.install_packages(("chromium", "fonts-dejavu-core"))
