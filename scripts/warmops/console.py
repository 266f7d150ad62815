"""Words for the person at the terminal.

In: sentences, commands, errors. Out: progress on stderr, so that stdout stays free for facts. Refuses to know
what is being done: no module of this project is needed here but the error type. `NO_COLOR` and a stderr that
is no terminal switch colour off.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from warmplan.errors import Problem, UserError

if TYPE_CHECKING:
    from rich.console import Console

HEARTBEAT_SECONDS = 15.0
_DIM, _BOLD, _RED, _PLAIN = "\x1b[2m", "\x1b[1m", "\x1b[31m", "\x1b[0m"


def say(text: str) -> None:
    """One line of progress on stderr."""
    _write(text)


def heading(text: str) -> None:
    """A line that starts a new step of a longer command."""
    _write(_coloured(text, _BOLD))


def echo_command(text: str) -> None:
    """Show a command as it is run; `text` is quoted for a shell and masked by the caller."""
    _write(_coloured(f"$ {text}", _DIM))


def warn(text: str) -> None:
    """Something a person should see although the command goes on."""
    _write(f"warning: {text}")


@contextmanager
def working(what: str | Callable[[], str]) -> Iterator[None]:
    """While the block runs in silence, say every 15 s what is being done and for how long."""
    begun, done = time.monotonic(), threading.Event()

    def beat() -> None:
        while not done.wait(HEARTBEAT_SECONDS):
            say(f"{what if isinstance(what, str) else what()}: {time.monotonic() - begun:.0f} s so far")

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def counting(what: str, total: int, shown: Callable[[int], str] = str) -> Iterator[Callable[[int], None]]:
    """While the block runs, show how much of a whole is done: a bar on a terminal, else a line now and then.

    Yields what counts up; `shown` writes a count for a person.
    """
    if sys.stderr.isatty():
        from rich.progress import Progress

        with Progress(console=rich_console(), transient=True) as progress:
            task = progress.add_task(what, total=total)
            yield lambda count: progress.advance(task, count)
        return
    counts = [0]  # appending is safe between threads
    with working(lambda: f"{what}, {shown(sum(counts))} of {shown(total)}"):
        yield counts.append


def failure(problem: str, hint: str | None = None, *, exit_code: int, key: str = "") -> UserError:
    """A user error with one problem, for host-side trouble that has no line in a file.

    Exit codes: 1 what was checked is not so, 2 wrong input, 3 docker or host unusable.
    """
    return UserError([Problem(key=key, problem=problem, hint=hint)], exit_code=exit_code)


def rich_console() -> Console:
    """A Rich console on stderr; imported on first use because Rich costs more than most commands."""
    from rich.console import Console

    return Console(stderr=True)


def _coloured(text: str, colour: str) -> str:
    if os.environ.get("NO_COLOR") or not sys.stderr.isatty():
        return text
    return f"{colour}{text}{_PLAIN}"


def _write(text: str) -> None:
    # One write a line: build output and several threads share this stream.
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
