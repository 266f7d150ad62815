"""Which images there are and what makes their inputs' hash change, seen on a copy of the image folders."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from warmops.images import context_files, describe_images, hash_inputs
from warmops.pins import REPOSITORY, read_pins

FOLDERS = ("base-image", "vllm-image", "daemon-image", "gateway-image", "webui-image")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for folder in FOLDERS:
        shutil.copytree(REPOSITORY / folder, tmp_path / folder)
    (tmp_path / "compose").mkdir()
    shutil.copy(REPOSITORY / "compose/pins.yaml", tmp_path / "compose")
    return tmp_path


def hashes(repository: Path) -> dict[str, str]:
    return hash_inputs(describe_images("cpu", read_pins(repository), repository), repository)


def changed(repository: Path, change: Callable[[Path], object]) -> set[str]:
    before = hashes(repository)
    change(repository)
    after = hashes(repository)
    return {tag.split("/")[1].split(":")[0] for tag in after if before.get(tag) != after[tag]}


def append(path: str, line: str = "# more") -> Callable[[Path], object]:
    return lambda root: (root / path).write_text((root / path).read_text() + f"\n{line}\n")


def test_tags_of_both_platforms() -> None:
    pins = read_pins()
    cpu = [image.tag for image in describe_images("cpu", pins)]
    cuda = [image.tag for image in describe_images("cuda", pins)]
    assert cpu[-2:] == ["warmstack/vllm:0.32.0-cpu", "warmstack/weight-cache:0.32.0-cpu"]
    assert cuda[-2:] == ["warmstack/vllm:0.33.0-cuda", "warmstack/weight-cache:0.33.0-cuda"]
    assert {"warmstack/base:bookworm", "warmstack/gateway:2.11.7", "warmstack/open-webui:0.12.4"} <= set(cpu)


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
def test_an_image_comes_after_its_parent(platform: str) -> None:
    images = describe_images("cpu" if platform == "cpu" else "cuda", read_pins())
    seen: set[str] = set()
    for image in images:
        assert image.parent is None or image.parent in seen
        seen.add(image.tag)


@pytest.mark.parametrize(
    ("change", "images"),
    [
        (append("daemon-image/Dockerfile"), set()),
        (append("daemon-image/Dockerfile", "USER 1"), {"weight-cache"}),
        (append("gateway-image/Caddyfile"), {"gateway"}),
        (append("gateway-image/warmstack_gateway/relay.py"), {"gateway"}),
        (append("webui-image/slim"), {"open-webui", "open-webui-venv"}),
        # The weights are held by what the engine's own files are no part of.
        (append("vllm-image/bin/warmstack-engine"), {"vllm"}),
        (append("vllm-image/warmstack_engine/loop.py"), {"vllm"}),
        (append("vllm-image/warmstack_fetch/hub.py"), {"vllm"}),
        (append("vllm-image/Dockerfile", "USER 1"), {"vllm"}),
        (append("vllm-image/warmstack_probe.py"), {"vllm-common", "vllm", "weight-cache"}),
        (append("vllm-image/warmstack_shared/marks.py"), {"vllm-common", "vllm", "weight-cache"}),
        (append("vllm-image/plugin/pyproject.toml"), {"vllm-common", "vllm", "weight-cache"}),
        (
            append("vllm-image/requirements-cpu.lock"),
            {"vllm-venv", "vllm-common", "vllm", "weight-cache"},
        ),
        (append("vllm-image/Dockerfile.cuda"), set()),
        (lambda root: (root / "vllm-image/bin/warmstack-engine").chmod(0o644), {"vllm"}),
        (lambda root: (root / "vllm-image/bin/warmstack-engine").chmod(0o700), set()),
        (lambda root: (root / "vllm-image/bin/.hidden").touch(), set()),
        (lambda root: (root / "vllm-image/notes").mkdir(), set()),
        (lambda root: (root / "daemon-image/new.py").touch(), {"weight-cache"}),
    ],
)
def test_what_a_change_rebuilds(repository: Path, change: Callable[[Path], object], images: set[str]) -> None:
    assert changed(repository, change) == images


def test_a_change_of_the_base_rebuilds_everything(repository: Path) -> None:
    assert len(changed(repository, append("base-image/Dockerfile", "USER 1"))) == len(hashes(repository))


def test_bytecode_and_build_leftovers_are_no_inputs(repository: Path) -> None:
    def litter(root: Path) -> None:
        for name in ("__pycache__/x.pyc", "build/lib/x.py", "x.egg-info/PKG-INFO"):
            path = root / "vllm-image/plugin" / name
            path.parent.mkdir(parents=True)
            path.touch()

    assert changed(repository, litter) == set()


def test_no_image_gets_more_than_its_own_folder() -> None:
    for image in describe_images("cpu", read_pins()):
        folders = {path.relative_to(REPOSITORY).parts[0] for _, path in context_files(image, REPOSITORY)}
        assert len(folders) <= 1, image.tag


@pytest.mark.parametrize(
    "dockerfile", sorted(REPOSITORY.glob("*-image/*Dockerfile*")), ids=lambda path: str(path.name)
)
def test_dockerfiles_need_no_buildkit_and_end_as_an_ordinary_user(dockerfile: Path) -> None:
    text = re.sub(r"\\\n", " ", dockerfile.read_text())
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    words = [line[0] for line in lines]
    assert set(words) <= {"ARG", "FROM", "RUN", "COPY", "ENV", "USER", "WORKDIR", "ENTRYPOINT", "LABEL"}
    assert not [line for line in lines if re.search(r"--mount|--chmod|--link|<<", line[1])]
    users = [line[1] for line in lines if line[0] == "USER"]
    if "ENTRYPOINT" in words:
        assert users[-1] == "10001:10001"
