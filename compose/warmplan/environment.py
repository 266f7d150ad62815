"""One environment folder: its name and its file, read but not yet judged.

In: the folder or its environment.yaml. Out: `Environment`. Which keys mean something is the matter of `spec`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from warmplan.document import Document, read_document
from warmplan.errors import Problem, UserError

FILE_NAME: Final = "environment.yaml"


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The wish as written. `name` is the folder's name; the document's `file` is the path as it was given."""

    name: str
    document: Document


def read_environment(path: Path) -> Environment:
    """Read an environment by its folder or by its file.

    Errors: `UserError` (exit code 2): no such file, not YAML, duplicate keys, control characters.
    """
    file = path / FILE_NAME if path.is_dir() else path
    if not file.is_file():
        known = _neighbours(path.parent if not path.suffix else path.parent.parent)
        hint = f"there are: {', '.join(known)}" if known else None
        raise UserError(Problem(key=str(file), problem="there is no such environment", hint=hint))
    return Environment(name=file.resolve().parent.name, document=read_document(file))


def _neighbours(folder: Path) -> list[str]:
    return sorted(found.parent.name for found in folder.glob(f"*/{FILE_NAME}"))
