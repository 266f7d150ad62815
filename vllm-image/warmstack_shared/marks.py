"""Marks: facts for the host, one JSON object a line on stdout (docs/architecture.md, "Engine").

In: an event and its fields. Out: a line, written whole. Refuses to know: who reads it.
"""

import json
import os
import threading
import time
from collections.abc import Callable
from typing import Any

PREFIX = "warmstack: "
_one_writer = threading.Lock()
_listeners: list[Callable[[str, float], None]] = []


def mark_line(event: str, now: float, fields: dict[str, Any]) -> str:
    """One mark without its line end; `now` is unix seconds."""
    return PREFIX + json.dumps({"event": event, "t": round(now, 3), **fields})


def emit(event: str, **fields: Any) -> None:
    now = time.time()
    write_whole(1, (mark_line(event, now, fields) + "\n").encode())
    for listener in _listeners:
        listener(event, now)


def listen(listener: Callable[[str, float], None]) -> None:
    """Call `listener` with the name and the unix second of each mark of this process."""
    _listeners.append(listener)


def write_whole(target: int, text: bytes) -> None:
    """Write all of `text` to a file descriptor; a pipe takes it in pieces when its reader is slow."""
    with _one_writer:  # a mark never lands inside a line that another thread writes
        while text:
            text = text[os.write(target, text) :]
