"""Marks: facts for whoever reads the log, one JSON object a line on stdout, as the engine writes them."""

import json
import os
import time
from typing import Any


def emit(event: str, **fields: Any) -> None:
    """One line, written whole; Caddy writes to the same stdout."""
    line = "warmstack: " + json.dumps({"event": event, "t": round(time.time(), 3), **fields}) + "\n"
    os.write(1, line.encode())
