"""The real Compose binary for reading files back. It needs no Docker engine for that."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_PLUGINS = (
    "/usr/local/lib/docker/cli-plugins",
    "/usr/libexec/docker/cli-plugins",
    "/usr/lib/docker/cli-plugins",
)


def compose_binary() -> str:
    """The path of Compose; without one the test is skipped, and fails in CI."""
    beside_python = Path(sys.executable).parent / "docker-compose"
    folders = [Path.home() / ".docker/cli-plugins", *map(Path, _PLUGINS)]
    for path in (*(folder / "docker-compose" for folder in folders), beside_python):
        if os.access(path, os.X_OK):
            return str(path)
    found = shutil.which("docker-compose")
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("CI runs `make test`, which installs the Compose plugin: it must be there")
        pytest.skip("needs the Compose plugin, which `make test` (--level all or docker) installs")
    return found


def compose(folder: Path, text: str, *arguments: str, variables: dict[str, str] | None = None) -> str:
    """Write compose.yaml into the folder and run Compose on it, with no variables but those given."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "compose.yaml").write_text(text, encoding="utf-8")
    told = subprocess.run(
        [
            compose_binary(),
            "--project-directory",
            str(folder),
            "-f",
            str(folder / "compose.yaml"),
            *arguments,
        ],
        env={"PATH": os.defpath, "HOME": str(folder), **(variables or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    return told.stdout


def read_back(folder: Path, text: str) -> Any:
    """What Compose makes of the file, as JSON. It doubles `$` again on its way out; that is undone here."""
    return _undoubled(json.loads(compose(folder, text, "config", "--format", "json")))


def service_hash(folder: Path, text: str, service: str, *, variables: dict[str, str] | None = None) -> str:
    """The hash by which Compose decides whether a service must be recreated."""
    told = compose(folder, text, "config", "--hash", service, variables=variables)
    return told.split()[1]


def _undoubled(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("$$", "$")
    if isinstance(value, list):
        return [_undoubled(item) for item in value]
    if isinstance(value, dict):
        return {_undoubled(key): _undoubled(item) for key, item in value.items()}
    return value
