"""Digest of a local folder: content decides, names and times do not; what is no checkpoint is refused."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from pathlib import Path

import pytest

from warmops.checkpoint import local_manifest
from warmplan.errors import UserError


def safetensors(payload: bytes, *, length: int | None = None) -> bytes:
    header = json.dumps({"w": {"dtype": "U8", "shape": [4], "data_offsets": [0, length or len(payload)]}})
    return struct.pack("<Q", len(header)) + header.encode() + payload


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "model"
    made.mkdir()
    (made / "config.json").write_text('{"architectures": ["X"]}')
    (made / "model.safetensors").write_bytes(safetensors(b"abcd"))
    (made / "README.md").write_text("not part of the weights")
    return made


def test_digest_is_sha256sum_of_the_deciding_files(folder: Path, tmp_path: Path) -> None:
    manifest = local_manifest(folder, memory=tmp_path / "memory.json")
    lines = "".join(
        f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n"
        for name in ("config.json", "model.safetensors")
    )
    assert manifest["digest"] == hashlib.sha256(lines.encode()).hexdigest()
    assert manifest["weight_bytes"] == 4
    assert (manifest["path"], manifest["source"]) == ("/model", "local")


def test_retrained_in_place_is_another_digest(folder: Path, tmp_path: Path) -> None:
    memory = tmp_path / "memory.json"
    before = local_manifest(folder, memory=memory)["digest"]
    (folder / "README.md").write_text("changed")
    assert local_manifest(folder, memory=memory)["digest"] == before
    (folder / "model.safetensors").write_bytes(safetensors(b"abcX"))
    assert local_manifest(folder, memory=memory)["digest"] != before


def test_what_is_remembered_is_not_read_again(folder: Path, tmp_path: Path) -> None:
    memory = tmp_path / "memory.json"
    before = local_manifest(folder, memory=memory)
    weights = folder / "model.safetensors"
    facts = weights.stat()
    with weights.open("r+b") as stream:
        stream.seek(-1, os.SEEK_END)
        stream.write(b"X")
    # Same size, mtime and inode: the stamp is what the memory goes by.
    os.utime(weights, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert local_manifest(folder, memory=memory) == before
    memory.write_text("damaged")
    assert local_manifest(folder, memory=memory)["digest"] != before["digest"]


def test_progress_counts_every_byte(folder: Path, tmp_path: Path) -> None:
    seen: list[int] = []
    local_manifest(folder, memory=tmp_path / "m.json", progress=seen.append)
    assert sum(seen) == sum((folder / n).stat().st_size for n in ("config.json", "model.safetensors"))


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("model.safetensors", None, "no *.safetensors"),
        ("config.json", None, "no readable config.json"),
        ("config.json", b"{", "is not JSON"),
        ("config.json", b"[]", "holds no table"),
        ("model.safetensors", b"version https://git-lfs.github.com/spec/v1\n", "is not a safetensors file"),
        ("model.safetensors", b"", "is not a safetensors file"),
        ("model.safetensors", safetensors(b"abcd", length=400), "shorter than its header says"),
    ],
)
def test_refused(folder: Path, tmp_path: Path, name: str, content: bytes | None, words: str) -> None:
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises(UserError) as caught:
        local_manifest(folder, memory=tmp_path / "m.json")
    assert words in str(caught.value)
    assert caught.value.exit_code == 2


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        local_manifest(tmp_path / "none", memory=tmp_path / "m.json")
