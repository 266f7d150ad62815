"""Snapshots on disk: one immutable folder and one manifest beside it (docs/architecture.md, "Model files").

In: a folder filled by a source. Out: manifests. Publishing is a rename, so a reader never sees half a
snapshot. Refuses to know: where the files came from.
"""

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from warmstack_shared.checkpoint import Checkpoint, read_checkpoint
from warmstack_shared.errors import Failure

SCHEMA = 1
_STAGING = ".staging"


@dataclass(frozen=True, kw_only=True)
class Manifest:
    schema: int
    model: str
    revision: str
    commit: str | None
    source: str  # hub, package, local
    package: str | None
    digest: str
    path: str
    weight_bytes: int
    files: dict[str, dict[str, Any]]
    config: dict[str, Any]

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a model's files come from, in the words of the manifest."""

    model: str
    revision: str
    source: str
    commit: str | None = None
    package: str | None = None


def model_folder(hub: Path, model: str) -> Path:
    return hub / "models" / model.replace("/", "--")


def describe(origin: Origin, checkpoint: Checkpoint, path: Path) -> Manifest:
    return Manifest(
        schema=SCHEMA,
        **asdict(origin),
        digest=checkpoint.digest,
        path=str(path),
        weight_bytes=checkpoint.weight_bytes,
        files={name: {"sha256": sha, "bytes": size} for name, (sha, size) in checkpoint.files.items()},
        config=checkpoint.config,
    )


def manifests(folder: Path) -> list[Manifest]:
    """Manifests of one model, the newest first. Those whose snapshot folder is gone are left out."""
    found: list[tuple[int, Manifest]] = []
    for path in folder.glob("*.json"):
        try:
            manifest = Manifest(**json.loads(path.read_text()))
        except (ValueError, TypeError) as error:
            raise Failure(
                f"{path} is not a manifest of schema {SCHEMA}: {error}", hint="delete it and fetch again"
            ) from error
        if Path(manifest.path).is_dir():
            found.append((path.stat().st_mtime_ns, manifest))
    return [manifest for _, manifest in sorted(found, key=lambda pair: -pair[0])]


@contextlib.contextmanager
def staging(folder: Path) -> Iterator[Path]:
    """A folder to fill, one writer at a time. It outlives a killed run: files that are whole stay."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / ".lock", os.O_CREAT | os.O_RDWR, 0o644)
    except OSError as error:
        raise Failure(
            f"cannot write to {folder}: {error.strerror}",
            hint=f"the volume mounted at /hub must belong to user {os.getuid()}",
            exit_code=3,
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        place = folder / _STAGING
        place.mkdir(exist_ok=True)
        yield place
    finally:
        os.close(lock)


def publish(place: Path, origin: Origin) -> Manifest:
    """Turn a filled staging folder into a snapshot. A snapshot of the same digest is kept and reused."""
    checkpoint = read_checkpoint(place)
    target = place.parent / checkpoint.digest[:16]
    if target.exists():
        shutil.rmtree(place)
    else:
        _open_to_readers(place)
        _sync(place)
        place.rename(target)
    manifest = describe(origin, checkpoint, target)
    draft = target.with_suffix(".json.draft")
    draft.write_text(json.dumps(asdict(manifest), indent=1, sort_keys=True) + "\n")
    draft.rename(target.with_suffix(".json"))
    return manifest


def _open_to_readers(folder: Path) -> None:
    """Files for all to read: safetensors writes 0600, and a service may run as another user than the
    fetcher.
    """
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _sync(folder: Path) -> None:
    """Bytes before names: after a power cut there is a whole snapshot or none."""
    for path in [*folder.rglob("*"), folder]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
