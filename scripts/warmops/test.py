"""`warm test`: everything that the tests need, then pytest.

In: the level and words for pytest. Out: pytest's own output, its last line last, and its exit code. Tests
that need nothing begin at once; images and Chromium are made beside them, and pytest is told through a pipe
when they are there (tests/support/preparation.py).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from warmops import console, host_steps
from warmops.docker import Docker
from warmops.host import ensure_docker
from warmops.image_build import ensure_images
from warmops.pins import REPOSITORY
from warmplan.errors import UserError

LEVELS = ("unit", "docker", "browser", "long", "gpu", "all")
_WITH_CONTAINERS = ("docker", "browser", "long", "all")
_WITH_BROWSER = ("browser", "long", "all")
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_LOG = REPOSITORY / ".artefacts" / "preparation.log"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--level", choices=LEVELS, default="all", help="all: every level but long and gpu (all)"
    )
    parser.add_argument(
        "--install-docker", choices=("yes", "no"), default="yes", help="install what is missing"
    )
    parser.add_argument("pytest", nargs="*", help="words for pytest, after --")


def run(arguments: argparse.Namespace) -> int:
    level, install = arguments.level, arguments.install_docker == "yes"
    if level not in _WITH_CONTAINERS:
        return subprocess.run(_pytest(level, arguments.pytest), cwd=REPOSITORY, check=False).returncode
    ensure_docker(install=install)
    if level in _WITH_BROWSER:
        _refuse_without_browser(install=install)
    # Decided now: what the engine is cannot change, and pytest sorts its tests before they begin.
    own = ("--own-host",) if os.geteuid() == 0 and host_steps.engine_is_ours() else ()
    return _beside_preparation(level, (*own, *arguments.pytest))


def _pytest(level: str, words: Sequence[str]) -> list[str]:
    command = [sys.executable, "-m", "pytest", "--level", level, "--lanes", *words]
    console.echo_command(f"python -m {' '.join(command[2:])}")
    return command


def _beside_preparation(level: str, words: Sequence[str]) -> int:
    """Run pytest, and meanwhile make what its later tests need. What that says goes to a file."""
    _LOG.parent.mkdir(exist_ok=True)
    listening, telling = os.pipe()
    command = _pytest(level, (*words, "--preparation", f"{listening}:{_LOG}"))
    with os.fdopen(telling, "wb", buffering=0) as tell, _LOG.open("w", encoding="utf-8") as log:
        process = subprocess.Popen(command, cwd=REPOSITORY, pass_fds=(listening,))
        os.close(listening)
        try:
            with contextlib.redirect_stderr(log):
                _prepare(level)
            with contextlib.suppress(BrokenPipeError):  # pytest ended before it needed them
                tell.write(b"ready")
        except UserError as error:
            log.write("".join(f"{problem}\n" for problem in error.problems))
        finally:
            log.flush()
            tell.close()
            returncode = process.wait()
    return returncode


def _prepare(level: str) -> None:
    """Images and Chromium, side by side. Raises UserError (exit code 3)."""
    with ThreadPoolExecutor() as pool:
        work: list[Future[object]] = [pool.submit(ensure_images, Docker(), "cpu")]
        if level in _WITH_BROWSER and not _has_browser():
            work.append(pool.submit(host_steps.install_packages, ("chromium", "fonts-dejavu-core")))
        for one in work:
            one.result()


def _has_browser() -> bool:
    return any(shutil.which(name) for name in _BROWSERS)


def _refuse_without_browser(*, install: bool) -> None:
    """Chromium comes from the distribution: Playwright's own download is left alone."""
    if not _has_browser() and (not install or os.geteuid() != 0 or not host_steps.has_apt()):
        raise console.failure(
            "the browser level needs Chromium",
            "install chromium, or run another level: make test LEVEL=docker",
            exit_code=3,
        )
