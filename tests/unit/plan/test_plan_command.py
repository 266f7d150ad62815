"""`warm plan`: a laptop plans for a server, in under a second, with nothing heavy imported."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.wishes import REPOSITORY

PATHS = f"{REPOSITORY / 'compose'}:{REPOSITORY / 'scripts'}"
HEAVY = {"torch", "vllm", "transformers", "requests", "numpy", "playwright"}
MEASURE = """
import resource, sys
from warmops.cli import main
code = main(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_SELF)
print(sorted({name.split('.')[0] for name in sys.modules}), used.ru_utime + used.ru_stime, file=sys.stderr)
sys.exit(code)
"""


def plan(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", MEASURE, "plan", *arguments],
        cwd=folder,
        env={"PATH": os.defpath, "PYTHONPATH": PATHS, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("name", ["cpu", "gpu", "gpu-tp2"])
def test_it_is_light_and_quick(name: str, tmp_path: Path) -> None:
    told = plan("--env", name, folder=tmp_path)
    assert told.returncode == 0, told.stderr
    modules, seconds = told.stderr.rsplit("]", 1)
    assert not {module for module in HEAVY if f"'{module}'" in modules}
    # Seconds of this process alone: other work on the machine does not count.
    assert float(seconds) < 1


def test_the_table_adds_up_and_the_picture_is_there(tmp_path: Path) -> None:
    text = plan("--env", "gpu", folder=tmp_path).stdout
    assert "weights, held by the weight cache" in text
    assert "[WWWWWWWWWWWWcgaKKKKKKKKKKKKKKKKKKKSSSSSSSSSSSSSSSSSSSSSh········]" in text
    assert "Requests of full length at the same time: 5.3 of 32768 tokens." in text
    assert "\x1b" not in text


def test_a_lock_of_another_model_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    shutil.copytree(REPOSITORY / "compose/environments/gpu", folder)
    text = plan("--env", str(folder), "--model", "Qwen/Qwen3-32B", folder=tmp_path).stdout
    assert "lock.yaml is of another model: Qwen/Qwen3-8B (main)" in text
    assert "weights, held by the weight cache       ?" in text
    assert "sum of what is known" in text


def test_json_holds_the_same_sum(tmp_path: Path) -> None:
    facts = json.loads(plan("--env", "gpu", "--json", folder=tmp_path).stdout)
    memory = facts["memory"]
    assert sum(part["bytes"] for part in memory["parts"]) == memory["total_bytes"]
    assert memory["rank_weight_bytes"] == 16_381_470_720
    assert facts["settings"]["engine.kv_cache.gib"] == [24.0, "environment.yaml:10"]


def test_a_wish_that_does_not_fit_is_an_error_with_an_offer(tmp_path: Path) -> None:
    told = plan("--env", "gpu-tp2", "--set", "engine.kv_cache.gib=60", folder=tmp_path)
    assert told.returncode == 2
    assert (
        "error: gpu.memory_gib: 94.81 GiB are needed on a GPU of 79.00 GiB: 15.81 GiB too much" in told.stderr
    )
    assert "hint: engine.kv_cache.gib 44.19 would fit" in told.stderr


def test_a_new_model_on_two_gpus_planned_from_a_folder(tmp_path: Path) -> None:
    """An environment of one's own, with the two numbers by hand where nothing is locked yet."""
    folder = tmp_path / "server"
    folder.mkdir()
    (folder / "environment.yaml").write_text(
        "platform: cuda\n"
        "model: {name: Org/New, weight_gib: 30.5, kv_bytes_per_token: 131072}\n"
        "parallel: {tensor: 2}\n"
        "engine: {max_model_len: 32768, kv_cache: {concurrency: 6}}\n"
        "gpu: {memory_gib: 80}\n"
    )
    told = plan("--env", str(folder), "--json", folder=tmp_path)
    assert told.returncode == 0, told.stderr
    memory = json.loads(told.stdout)["memory"]
    assert memory["kv_cache_bytes"] == 6 * 32768 * 131072
    assert memory["full_length_requests"] == 6
