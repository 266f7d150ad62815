"""A local checkpoint folder: which content it has, told by a digest of the files that decide the weights.

In: a folder. Out: a manifest of the same form that `warmstack-fetch` prints (docs/architecture.md). A file is
read once and remembered by path, size, mtime and inode, so that the second `up` reads headers only.
It refuses to know models by name: a hub is none of its business.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warmplan.errors import Problem, UserError

MODEL_MOUNT = "/model"
_DECIDING = ("*.safetensors", "*.safetensors.index.json", "config.json", "hf_quant_config.json")
_QUANTISATION = ("quantize_config.json",)
_BLOCK = 8 * 1024 * 1024
# A safetensors header of more than this is refused by the format's own reader too.
_MAX_HEADER = 100_000_000

Progress = Callable[[int], None]


@dataclass(frozen=True, kw_only=True)
class FileDigest:
    name: str
    sha256: str
    size_bytes: int


def local_manifest(folder: Path, *, memory: Path, progress: Progress = lambda _: None) -> dict[str, Any]:
    """Manifest of a folder that is to be mounted at `/model`; `progress` is told bytes as they are read.

    `memory` is the file in which digests are remembered. Raises UserError (exit code 2) when the folder holds
    no safetensors, no config.json, or a file that is not what its name says.
    """
    files = deciding_files(folder)
    config = _read_config(folder)
    digests = _digest_all(files, memory, progress)
    return {
        "schema": 1,
        "model": str(folder),
        "revision": None,
        "commit": None,
        "source": "local",
        "package": None,
        "digest": combined_digest(digests),
        "path": MODEL_MOUNT,
        "weight_bytes": sum(tensor_bytes(file) for file in files if file.suffix == ".safetensors"),
        "files": {d.name: {"sha256": d.sha256, "bytes": d.size_bytes} for d in digests},
        "config": config,
    }


def deciding_files(folder: Path) -> tuple[Path, ...]:
    """The files that decide the weights, sorted by name."""
    if not folder.is_dir():
        raise _wrong(folder, "there is no such folder", "give the folder that holds config.json")
    names = {path for pattern in (*_DECIDING, *_QUANTISATION) for path in folder.glob(pattern)}
    if not any(path.suffix == ".safetensors" for path in names):
        hint = "convert the checkpoint to safetensors, or name a model of the hub"
        raise _wrong(folder, "the folder holds no *.safetensors file", hint)
    return tuple(sorted(names, key=lambda path: path.name))


def combined_digest(digests: tuple[FileDigest, ...]) -> str:
    """sha256 over the lines `<sha256>  <name>` of the files sorted by name: the form of `sha256sum`."""
    ordered = sorted(digests, key=lambda digest: digest.name)
    return hashlib.sha256("".join(f"{d.sha256}  {d.name}\n" for d in ordered).encode()).hexdigest()


def tensor_bytes(file: Path) -> int:
    """Bytes of all tensors of a safetensors file, from its header alone."""
    with file.open("rb") as stream:
        prefix = stream.read(8)
        length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else _MAX_HEADER + 1
        text = stream.read(length) if length <= _MAX_HEADER else b""
    try:
        header = json.loads(text)
        spans = [entry["data_offsets"] for name, entry in header.items() if name != "__metadata__"]
        size = sum(int(end) - int(begin) for begin, end in spans)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _wrong(file, "is not a safetensors file", "download it again; a Git LFS pointer?") from None
    if file.stat().st_size < 8 + length + size:
        raise _wrong(file, "is shorter than its header says", "the download is not complete: fetch it again")
    return size


def _digest_all(files: tuple[Path, ...], memory: Path, progress: Progress) -> tuple[FileDigest, ...]:
    remembered = _read_memory(memory)
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        digests = tuple(pool.map(lambda file: _digest(file, remembered, progress), files))
    fresh = {_memory_key(file): digest.sha256 for file, digest in zip(files, digests, strict=True)}
    if fresh.items() - remembered.items():
        _write_memory(memory, {**remembered, **fresh})
    return digests


def _digest(file: Path, remembered: Mapping[str, str], progress: Progress) -> FileDigest:
    size = file.stat().st_size
    known = remembered.get(_memory_key(file))
    if known is not None:
        progress(size)
        return FileDigest(name=file.name, sha256=known, size_bytes=size)
    sha256 = hashlib.sha256()
    with file.open("rb") as stream:
        while block := stream.read(_BLOCK):
            sha256.update(block)
            progress(len(block))
    return FileDigest(name=file.name, sha256=sha256.hexdigest(), size_bytes=size)


def _memory_key(file: Path) -> str:
    facts = file.stat()
    return json.dumps([str(file.resolve()), facts.st_size, facts.st_mtime_ns, facts.st_ino])


def _read_memory(memory: Path) -> dict[str, str]:
    try:
        value = json.loads(memory.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _write_memory(memory: Path, entries: Mapping[str, str]) -> None:
    memory.parent.mkdir(parents=True, exist_ok=True)
    part = memory.with_name(f"{memory.name}.{os.getpid()}.part")
    part.write_text(json.dumps(entries, indent=1, sort_keys=True), encoding="utf-8")
    part.replace(memory)


def _read_config(folder: Path) -> dict[str, Any]:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except OSError:
        raise _wrong(
            folder, "the folder holds no readable config.json", "give a Hugging Face folder"
        ) from None
    except ValueError:
        raise _wrong(folder / "config.json", "is not JSON", None) from None
    if not isinstance(config, dict):
        raise _wrong(folder / "config.json", "holds no table", None)
    return config


def _wrong(path: Path, problem: str, hint: str | None) -> UserError:
    return UserError([Problem(key=str(path), problem=problem, hint=hint)], exit_code=2)
