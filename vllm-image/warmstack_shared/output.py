"""Passes a child's output on, unchanged, and lets each line be read.

In: a file descriptor. Out: the same bytes on stdout; lines to a reader. Refuses to know: what is in them.
"""

import os
import re
from collections.abc import Callable

from warmstack_shared.marks import write_whole

_READ_BYTES = 65536
# The last kind is pydantic's: the line below "1 validation error for ModelConfig", which says what it is.
_ERROR = re.compile(
    r"((?:\w+\.)*\w*(?:Error|Exception): .+|\berror: .+|\b(?:Value error|Assertion failed), .+)$"
)
_PYDANTIC_INPUT = re.compile(r" \[type=\w+, input_value=.*")
# vLLM's last line of a failed start says nothing; the line that does came before it.
_SAYS_NOTHING = re.compile(r"Engine core initialization failed|Failed core proc")
# A warning may name an error that could happen, like the one about the limit of open files.
_NO_ERROR_LEVEL = re.compile(r"\b(DEBUG|INFO|WARNING) \d\d-\d\d ")


def error_in(line: str) -> str | None:
    """The error that a log line names, without the prefix of the logger."""
    found = _ERROR.search(line.rstrip())
    if not found or _SAYS_NOTHING.search(line) or _NO_ERROR_LEVEL.search(line):
        return None
    return _PYDANTIC_INPUT.sub("", found.group(1))


def pass_on(source: int, read_line: Callable[[str], None]) -> None:
    """Runs in a thread until the last writer has closed the pipe."""
    rest = b""
    while True:
        try:
            chunk = os.read(source, _READ_BYTES)
        except OSError:  # closed by the loop, which does not wait for orphans that hold the pipe
            return
        whole, end, rest = (rest + chunk).rpartition(b"\n")
        if not chunk:
            whole, end, rest = rest, b"", b""
        if whole or end:
            write_whole(1, whole + end)
            for line in whole.decode(errors="replace").split("\n"):
                read_line(line)
        if not chunk:
            return
