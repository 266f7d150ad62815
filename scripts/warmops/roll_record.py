"""What a roll writes down so that another run can take it up: `.warmstack/<project>/roll.json`.

In: a project's folder. Out: a `Record`, written as a whole at each step. It holds what cannot be seen from
outside (which containers are from before the roll, what the old engine answered, who was proved), the terms
it runs under, and for people the step and what was seen when it began.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from warmops.changes import Container

SCHEMA = 1
_FILE = "roll.json"


@dataclass(frozen=True, kw_only=True)
class Record:
    """One roll. `old` are the ids of the engines' containers from before it, `proved` are of `proof_of`.

    `hashes` are Compose's own of the new settings, any of which is right for its service.
    """

    begun_at: float
    old: Mapping[str, str]
    hashes: Mapping[str, tuple[str, ...]]
    standby: bool
    drain_seconds: int
    answers: tuple[str, ...] = ()
    proved: tuple[str, ...] = ()
    cut: int = 0
    step: str = ""
    seen: Mapping[str, Any] = field(default_factory=dict)
    pid: int = field(default_factory=os.getpid)
    schema: int = SCHEMA

    def is_old(self, container: Container) -> bool:
        """Whether the container is from before the roll, or made with other settings than the new ones."""
        name = container.service
        return self.old.get(name) == container.id or container.config_hash not in self.hashes.get(name, ())

    def is_proved(self, container: Container) -> bool:
        return proof_of(container) in self.proved

    def with_proof(self, container: Container) -> Record:
        return replace(self, proved=(*self.proved, proof_of(container)))


def proof_of(container: Container) -> str:
    """One start of one container: started again, it has to be proved again."""
    return f"{container.id}@{container.started_at:.3f}"


def read_record(folder: Path) -> Record | None:
    """The roll that did not end; None when there is none or another version wrote it."""
    try:
        value = json.loads((folder / _FILE).read_text(encoding="utf-8"))
        if value.get("schema") != SCHEMA:
            return None
        hashes = {name: tuple(found) for name, found in value["hashes"].items()}
        lists = {name: tuple(value[name]) for name in ("answers", "proved")}
        return Record(**{**value, **lists, "hashes": hashes})
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def write_record(folder: Path, record: Record) -> None:
    part = folder / f"{_FILE}.part"
    part.write_text(json.dumps(asdict(record), indent=2) + "\n", encoding="utf-8")
    part.replace(folder / _FILE)


def forget_record(folder: Path) -> None:
    (folder / _FILE).unlink(missing_ok=True)
