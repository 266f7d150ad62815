"""The two files of a report, whatever it is about.

In: when it began, its content for programs, its page for people. Out: `report.json` and `report.html` in a
folder of their own. Refuses to know what stands in them.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_files(reports: Path, started_at: str, content: Mapping[str, Any], page: str) -> Path:
    """Write both into a folder named by the time (RFC 3339); returns that folder."""
    folder = reports / started_at.replace(":", "").replace("-", "")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(as_text(content) + "\n", encoding="utf-8")
    (folder / "report.html").write_text(page, encoding="utf-8")
    return folder


def as_text(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False)


def host_facts() -> dict[str, str | int]:
    """What a report says of the machine it was made on."""
    return {"cores": os.cpu_count() or 0, "machine": platform.machine(), "kernel": platform.release()}
