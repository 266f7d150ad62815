"""What `make test` makes while the first tests run, and waiting for it.

In: `--preparation FD:LOG`: a pipe on which `warm test` writes `ready`, and the file in which it says what it
does. Out: nothing once all is there; else the run ends with the last lines of that file. Without the option
nothing is waited for.
"""

from __future__ import annotations

import os
import select
import time
from pathlib import Path

import pytest

BEAT_SECONDS = 15.0
FAILED = 3  # exit code: docker or host unusable


class Preparation:
    """`seconds` is how long tests had to wait."""

    def __init__(self, given: str | None) -> None:
        descriptor, _, log = (given or "").partition(":")
        self._pipe = int(descriptor) if descriptor else None
        self._log = Path(log)
        self.seconds = 0.0

    def wait(self, reporter: pytest.TerminalReporter) -> None:
        """Until everything is there; says every 15 s what is being done."""
        if self._pipe is None:
            return
        begun = time.monotonic()
        while not select.select([self._pipe], [], [], BEAT_SECONDS)[0]:
            reporter.ensure_newline()
            reporter.write_line(f"waiting for images and Chromium: {self._last_lines(1)}")
        told = os.read(self._pipe, 16)
        os.close(self._pipe)
        self._pipe = None
        self.seconds = time.monotonic() - begun
        if told != b"ready":
            pytest.exit(f"the tests cannot go on\n{self._last_lines(12)}", returncode=FAILED)

    def _last_lines(self, count: int) -> str:
        lines = [line for line in self._log.read_text(encoding="utf-8").splitlines() if line.strip()]
        return "\n".join(lines[-count:])
