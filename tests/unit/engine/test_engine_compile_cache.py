"""Compiled code that is broken: what vLLM rebuilds is said, what stops it is set aside, once."""

from pathlib import Path

import pytest

from support.pid_one import engine
from warmstack_engine.compile_cache import CompileCache

REBUILT = (
    "(EngineCore pid=7) WARNING 11-30 02:20:22 [decorators.py:340] [backbone] Compiling model again due to a "
    "load failure from /cache/vllm/torch_compile_cache/x/model, reason: Compile cache file corrupted."
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "vllm" / "torch_compile_cache"
    (folder / "x").mkdir(parents=True)
    return folder


def test_what_vllm_builds_again_is_said_and_nothing_is_set_aside(folder: Path) -> None:
    cache = CompileCache(folders=(folder,))
    said = cache.read(REBUILT)
    assert said is not None
    assert said.startswith("Compiling model again due to a load failure")
    assert cache.set_aside() is None


def test_an_error_that_names_a_folder_sets_it_aside_once(folder: Path) -> None:
    cache = CompileCache(folders=(folder, folder.parent / "not-there"))
    cache.read(f"(EngineCore pid=7) INFO 11-30 02:20:22 [backends.py:1] Using cache directory: {folder}/x")
    assert cache.set_aside() is None, "a line that is no error names it too"
    cache.read(f"OSError: [Errno 5] Input/output error: '{folder}/x/rank_0_0/model'")
    sentence = cache.set_aside()
    assert sentence is not None
    assert f"an error named {folder}" in sentence
    assert not folder.exists()
    assert (folder.parent / "torch_compile_cache.set-aside" / "x").is_dir()
    folder.mkdir()
    (folder / "new").touch()
    assert cache.set_aside() is None, "it was not the reason"
    cache.succeeded()
    cache.read(f"OSError: {folder}/new")
    assert cache.set_aside() is not None, "another time it may be"
    assert not (folder.parent / "torch_compile_cache.set-aside" / "x").exists()


def test_two_failures_without_a_word_are_enough(folder: Path) -> None:
    cache = CompileCache(folders=(folder,))
    cache.failed()
    assert cache.set_aside() is None
    cache.failed()
    sentence = cache.set_aside()
    assert sentence is not None
    assert "2 starts in a row failed" in sentence


def test_a_start_that_fails_over_its_cache_is_followed_by_one_without(tmp_path: Path, folder: Path) -> None:
    broken = f"RuntimeError: could not load {folder}/x/model"
    wish = {"lines": [broken], "exit": 1}
    with engine(tmp_path, wish, VLLM_CACHE_ROOT=str(folder.parent), WARMSTACK_NURSERY="on") as running:
        mark = running.wait_for("compile-cache", state="set-aside")
        assert str(folder) in mark["sentence"]
        start = running.events().index("compile-cache")
        assert running.events()[start - 1] == "engine-start", "it belongs to the start that builds anew"
        running.wait_for("gave-up")
        assert running.events().count("compile-cache") == 1


def test_a_refused_miss_is_not_held_against_it(tmp_path: Path, folder: Path) -> None:
    wish = {"lines": ["CacheConfigMismatchError: WeightCacheKey mismatch on fields: ['revision']"], "exit": 1}
    changes = {"VLLM_CACHE_ROOT": str(folder.parent), "WARMSTACK_MAX_RESTARTS": "3"}
    with engine(tmp_path, wish, **changes) as running:
        running.wait_for("gave-up")
        assert "compile-cache" not in running.events()
        assert folder.exists()
