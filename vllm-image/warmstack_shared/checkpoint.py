"""A model folder: which files decide its weights, their digest, and whether they changed since.

In: a flat folder of safetensors files. Out: `Checkpoint` (digest, files, bytes of weights), or the cheap
`files_stamp` that says "nothing was touched". Refuses to know: hubs, vLLM, who serves the model.
The digest is the same for a hub snapshot, a converted package and a local folder (docs/architecture.md).
"""

import hashlib
import json
import struct
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warmstack_shared.errors import Failure

_SUFFIXES = (".safetensors", ".safetensors.index.json")
_NAMES = ("config.json", "hf_quant_config.json", "quantize_config.json")
_READ_BYTES = 4 * 2**20
# hashlib lets go of the interpreter lock while it hashes, so threads do use several cores.
_THREADS = 8
# The format's own limit (safetensors 0.4): a longer header is no header.
_MAX_HEADER_BYTES = 100_000_000


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """What decides the weights of one folder. `files`: name → (sha256, bytes)."""

    digest: str
    files: dict[str, tuple[str, int]]
    weight_bytes: int
    config: dict[str, Any]


def deciding_files(folder: Path) -> list[Path]:
    """The files of `folder` that decide its weights, sorted by name.

    Raises `Failure` (exit code 2) when it is no folder or has no safetensors files.
    """
    if not folder.is_dir():
        raise Failure(f"{folder} is not a folder", hint="give the folder that holds config.json")
    found = [path for path in folder.iterdir() if path.name in _NAMES or path.name.endswith(_SUFFIXES)]
    if not any(path.name.endswith(".safetensors") for path in found):
        raise Failure(
            f"{folder} has no *.safetensors file",
            hint="only safetensors checkpoints can be held; convert the model or choose another",
        )
    return sorted(found, key=lambda path: path.name)


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read every deciding file in full (in threads) and return what they are."""
    paths = deciding_files(folder)
    with ThreadPoolExecutor(_THREADS) as pool:
        hashes = list(pool.map(_sha256, paths))
    files = {path.name: (sha, path.stat().st_size) for path, sha in zip(paths, hashes, strict=True)}
    return Checkpoint(
        digest=digest_of({name: sha for name, (sha, _) in files.items()}),
        files=files,
        weight_bytes=sum(_tensor_bytes(path) for path in paths if path.name.endswith(".safetensors")),
        config=_read_config(folder),
    )


def digest_of(hashes: dict[str, str]) -> str:
    """Digest of files named with their sha256: the one algorithm of docs/architecture.md."""
    lines = "".join(f"{hashes[name]}  {name}\n" for name in sorted(hashes))
    return hashlib.sha256(lines.encode()).hexdigest()


def read_digest(folder: Path) -> str:
    """The digest alone."""
    return read_checkpoint(folder).digest


def files_stamp(folder: Path) -> str:
    """sha256 over name, size, mtime and inode of the deciding files: equal means that nobody touched them."""
    lines = []
    for path in deciding_files(folder):
        info = path.stat()
        lines.append(f"{path.name} {info.st_size} {info.st_mtime_ns} {info.st_ino}\n")
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _sha256(path: Path) -> str:
    running = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_READ_BYTES):
            running.update(chunk)
    return running.hexdigest()


def _tensor_bytes(path: Path) -> int:
    """Bytes of the tensors that the header of a safetensors file names."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > _MAX_HEADER_BYTES:
                raise ValueError(f"a header of {length} bytes")
            header = json.loads(file.read(length))
        spans = [info["data_offsets"] for name, info in header.items() if name != "__metadata__"]
        return sum(end - start for start, end in spans)
    except (struct.error, ValueError, KeyError, TypeError) as error:
        raise Failure(
            f"{path} is not a safetensors file: {error}", hint="the download may be cut short; fetch it again"
        ) from error


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text())
    except FileNotFoundError:
        raise Failure(f"{folder} has no config.json", hint="give the folder of a whole model") from None
    except ValueError as error:
        raise Failure(f"{path} is not JSON: {error}", hint="fetch the model again") from error
    if not isinstance(config, dict):
        raise Failure(f"{path} is not a JSON object", hint="fetch the model again")
    return config
