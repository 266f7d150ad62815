"""The project's secrets: made once, kept as files, never shown.

In: the secrets folder and names. Out: files of mode 0444 in a folder of mode 0700: nobody else on the host
can reach them, and inside a container the mounted file itself is readable by the container's user.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from pathlib import Path

_BYTES = {"webui_secret_key": 48, "webui_admin_password": 18, "api_key": 32}
_PREFIX = {"api_key": "sk-"}


def ensure_secrets(folder: Path, names: Iterable[str]) -> tuple[str, ...]:
    """Make the secrets that are missing; gives the names of those. A secret that is there stays as it is."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    made = []
    for name in names:
        path = folder / name
        if path.exists() and path.stat().st_size:
            continue
        path.unlink(missing_ok=True)
        value = _PREFIX.get(name, "") + secrets.token_urlsafe(_BYTES[name])
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444), "w") as stream:
            stream.write(value)
        path.chmod(0o444)
        made.append(name)
    return tuple(made)
