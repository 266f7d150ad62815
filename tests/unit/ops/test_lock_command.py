"""`warm lock`: which image fetches, which digests are taken over, what is written and how a change reads."""

from __future__ import annotations

import argparse
import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from support.checkpoints import TINY_CONFIG
from support.wishes import PINS, spec_of
from warmops import lock
from warmops.docker import Completed, Docker
from warmops.project import ROOT
from warmplan import LockChange, UserError, read_lock
from warmplan.placement import HUB_VOLUME

CPU_IMAGE, CUDA_IMAGE = "warmstack/vllm:0.32.0-cpu", "warmstack/vllm:0.33.0-cuda"
CPU = "platform: cpu\nmodel: {name: Org/Model}\n"
CUDA = CPU.replace("cpu", "cuda") + "gpu: {memory_gib: 80}\n"


def write_checkpoint(folder: Path, payload: bytes) -> Path:
    """A folder that is a checkpoint by its form; `payload` are the bytes of its one tensor."""
    folder.mkdir(exist_ok=True)
    header = json.dumps({"w": {"dtype": "U8", "shape": [4], "data_offsets": [0, len(payload)]}}).encode()
    (folder / "config.json").write_text(json.dumps(TINY_CONFIG))
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + payload)
    return folder


class Images(Docker):
    """A Docker engine that has these images and nothing else."""

    def inspect(self, name: str, kind: str = "container") -> dict[str, Any] | None:
        return {"RepoDigests": []} if name in self.environment else None

    def capture(self, *arguments: str, **options: Any) -> Completed:
        """`docker run … warmstack-fetch find`, whose answer stands under the image."""
        assert arguments[0] == "run"
        assert "find" in arguments
        answer = next(self.environment[word] for word in arguments if word in self.environment)
        return Completed(command=arguments, returncode=0 if answer else 1, stdout=answer, stderr="")


def docker_with(*images: str) -> Docker:
    return Images(environment=dict.fromkeys(images, ""))


@pytest.mark.parametrize(
    ("text", "images", "expected"),
    [
        (CPU, [CPU_IMAGE, CUDA_IMAGE], CPU_IMAGE),
        (CUDA, [CPU_IMAGE, CUDA_IMAGE], CUDA_IMAGE),
        (CUDA, [CPU_IMAGE], CPU_IMAGE),
    ],
)
def test_the_image_that_fetches(text: str, images: list[str], expected: str) -> None:
    assert lock.fetching_image(docker_with(*images), spec_of(text), PINS) == expected


def test_without_an_image_nothing_can_be_fetched() -> None:
    with pytest.raises(UserError, match="make images") as raised:
        lock.fetching_image(docker_with(), spec_of(CPU), PINS)
    assert raised.value.exit_code == 3


def test_offline_without_a_snapshot_is_said() -> None:
    with pytest.raises(UserError, match="has no snapshot on disk") as raised:
        lock.resolve(docker_with(CPU_IMAGE), spec_of(CPU), PINS, offline=True)
    assert raised.value.exit_code == 1


@pytest.mark.parametrize(
    ("digests", "image", "expected"),
    [
        (["vllm/vllm-openai@sha256:ab"], "vllm/vllm-openai:v0.33.0", "sha256:ab"),
        (["debian@sha256:ab"], "docker.io/library/debian:bookworm-slim", "sha256:ab"),
        (["mirror.example:5000/debian@sha256:ab"], "debian:bookworm-slim", None),
        (["mirror.example:5000/debian@sha256:ab"], "mirror.example:5000/debian", "sha256:ab"),
        ([], "warmstack/vllm:0.32.0-cpu", None),
        (None, "debian:bookworm-slim", None),
    ],
)
def test_the_digest_of_a_registry(digests: list[str] | None, image: str, expected: str | None) -> None:
    assert lock.registry_digest({"RepoDigests": digests}, image) == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("Org/M", "main", "commit", "ab", "cd"), "Org/M@main: commit: ab → cd"),
        (("Org/M", "main", "weight_bytes", None, 7), "Org/M@main: weight_bytes: nothing → 7"),
        (("images", "", "debian:x", "sha256:a", None), "images: debian:x: sha256:a → nothing"),
    ],
)
def test_a_change_reads_old_to_new(change: tuple[Any, ...], expected: str) -> None:
    names = ("name", "revision", "field", "old", "new")
    assert lock.change_line(LockChange(**dict(zip(names, change, strict=True)))) == expected


def manifest(commit: str, sha256: str) -> str:
    """What `warmstack-fetch find` prints of a hub model."""
    found = {
        "schema": 1,
        "model": "Org/Model",
        "revision": "main",
        "commit": commit,
        "source": "hub",
        "package": None,
        "digest": sha256,
        "path": "/hub/models/x",
        "weight_bytes": 4,
        "files": {"model.safetensors": {"sha256": sha256, "bytes": 12}},
        "config": TINY_CONFIG,
    }
    return json.dumps(found)


def test_a_branch_that_moved_is_shown_old_to_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "environment.yaml").write_text(CPU)
    for commit, sha256 in (("ab" * 20, "12" * 32), ("cd" * 20, "34" * 32)):
        docker = Images(environment={HUB_VOLUME: "", CPU_IMAGE: manifest(commit, sha256)})
        monkeypatch.setattr(lock, "Docker", lambda found=docker: found)
        assert lock.run(argparse.Namespace(env=str(tmp_path), offline=True, json=False)) == 0
    shown = capsys.readouterr().out
    assert f"Org/Model@main: entry: nothing → {'12' * 32}" in shown
    assert f"Org/Model@main: commit: {'ab' * 20} → {'cd' * 20}" in shown
    assert f"Org/Model@main: files.model.safetensors: {'12' * 32} → {'34' * 32}" in shown
    assert "cd" * 20 in (tmp_path / "plan.md").read_text()


@pytest.fixture
def local_environment(tmp_path: Path) -> tuple[Path, Path]:
    """An environment folder for a local model, and the model's folder."""
    model = write_checkpoint(tmp_path / "model", b"abcd")
    folder = tmp_path / "mine"
    shutil.copytree(ROOT / "compose/environments/cpu", folder)
    text = (folder / "environment.yaml").read_text()
    (folder / "environment.yaml").write_text(text.replace("HuggingFaceTB/SmolLM2-135M-Instruct", str(model)))
    return folder, model


def run_lock(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert lock.run(argparse.Namespace(env=str(folder), offline=True, json=True)) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_a_folder_that_was_retrained_gets_another_digest(
    local_environment: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Case 11."""
    folder, model = local_environment
    monkeypatch.setattr("warmops.model.STATE", tmp_path / "state")
    monkeypatch.setattr(lock, "Docker", docker_with)
    first = run_lock(folder, capsys)
    assert [change["field"] for change in first["changes"]] == ["entry"]
    locked = read_lock(folder / "lock.yaml").find(name=str(model), revision="main")
    assert locked is not None
    assert [name for name, _ in locked.files] == ["config.json", "model.safetensors"]
    assert str(locked.digest) in (folder / "compose.yaml").read_text()
    assert run_lock(folder, capsys)["changes"] == []

    write_checkpoint(model, b"abcX")
    changes = {change["field"]: change for change in run_lock(folder, capsys)["changes"]}
    assert changes.keys() == {"digest", "files.model.safetensors"}
    assert changes["digest"]["old"] == locked.digest
    assert changes["digest"]["new"] in (folder / "compose.yaml").read_text()
