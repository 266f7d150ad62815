"""The engine's starter as a real process, with a real supervisor socket and a fake `vllm` behind its command
line.
"""

from pathlib import Path
from typing import Any

import pytest

from support.pid_one import engine
from support.waiting import wait_until
from warmstack_shared.processes import all_pids

MISMATCH = "CacheConfigMismatchError: WeightCacheKey mismatch on fields: ['revision']"


def test_a_start_says_what_happens_and_ends_when_asked(tmp_path: Path) -> None:
    with engine(tmp_path, {"lines": ["hello {", "ünïcode"]}) as running:
        running.wait_for("ready")
        assert running.events() == ["engine-start", "weight-cache-ready", "pids-moved", "serve", "ready"]
        ready = running.marks[1]
        assert (ready["bytes_held"], ready["identity"]) == (269060552, "a" * 64)
        assert running.marks[3]["pid"] > running.marks[2]["past"]
        assert [line for line in running.lines if "PID 1" not in line] == ["hello {", "ünïcode"]
        assert running.end() == 0
        assert running.below() == []


def test_a_clean_exit_is_a_crash_and_what_it_left_is_removed(tmp_path: Path) -> None:
    """Cases 20 and 29."""
    with engine(tmp_path, {"die_file": str(tmp_path / "die"), "orphan": True}) as running:
        running.wait_for("ready")
        before = running.below()
        assert len(before) == 2
        (tmp_path / "die").touch()
        end = running.wait_for("engine-exit")
        assert (end["code"], end["signal"], end["crash"]) == (0, None, True)
        assert "killed what it left" in end["sentence"]
        assert not set(before) & set(all_pids())
        (tmp_path / "die").unlink()
        running.wait_for("ready", count=2)
        assert running.wait_for("engine-start", count=2)["attempt"] == 2


def test_wrong_configuration_is_bounded_and_named(tmp_path: Path) -> None:
    """Case 19."""
    wish = {"lines": ["vllm serve: error: unrecognized arguments: --nope"], "exit": 2}
    with engine(tmp_path, wish) as running:
        gave_up = running.wait_for("gave-up")
        assert running.events().count("serve") == 2
        assert "exit code 2: error: unrecognized arguments: --nope" in gave_up["sentence"]
        assert running.process.poll() is None, "stays, so that its log can be read and its health fails"
        assert running.end() == 1


def test_a_refusal_of_vllm_is_a_miss(tmp_path: Path) -> None:
    with engine(tmp_path, {"lines": [MISMATCH], "exit": 1}, WARMSTACK_MAX_RESTARTS="1") as running:
        miss = running.wait_for("miss")
        assert (miss["reason"], miss["outcome"]) == ("mismatch", "refused")
        assert running.wait_for("engine-exit")["error"] == MISMATCH


@pytest.mark.parametrize(
    ("status", "changes", "reason"),
    [
        ({"identity": "c" * 64}, {}, "mismatch"),
        ({"state": "loading"}, {}, "unavailable"),
        ({}, {"WARMSTACK_MODEL_DIGEST": "d" * 64}, None),  # the stamp is equal: nobody touched the files
    ],
)
def test_the_weight_cache_decides_before_vllm_starts(
    tmp_path: Path, status: dict[str, Any], changes: dict[str, str], reason: str | None
) -> None:
    with engine(tmp_path, {}, status, WARMSTACK_MAX_RESTARTS="1", **changes) as running:
        if reason is None:
            running.wait_for("ready")
            return
        running.wait_for("gave-up")
        assert running.events() == ["engine-start", "miss", "gave-up"]
        assert (running.marks[1]["reason"], running.marks[1]["outcome"]) == (reason, "refused")


def test_on_miss_disk_starts_without_the_weight_cache(tmp_path: Path) -> None:
    with engine(tmp_path, {}, {"identity": "c" * 64}, WARMSTACK_ON_MISS="disk") as running:
        running.wait_for("ready")
        miss = running.marks[1]
        assert (miss["reason"], miss["outcome"]) == ("mismatch", "fallback")
        assert running.events() == ["engine-start", "miss", "serve", "ready"]


def test_stop_while_it_ignores_sigterm(tmp_path: Path) -> None:
    """Case 20."""
    with engine(tmp_path, {"ignore_term": True}) as running:
        running.wait_for("ready")
        assert running.end() == 0
        assert running.below() == []


def test_a_hung_engine_is_dead(tmp_path: Path) -> None:
    """Case 29."""
    with engine(tmp_path, {"running": 1}, WARMSTACK_HANG_SECONDS="1") as running:
        end = running.wait_for("engine-exit")
        assert "has 1 requests and made no token for" in end["sentence"]
        running.wait_for("ready", count=2)


def test_stop_while_waiting_for_the_weight_cache(tmp_path: Path) -> None:
    with engine(tmp_path, {}, {"state": "loading"}, WARMSTACK_WAIT_SECONDS="600") as running:
        running.wait_for("engine-start")
        assert running.end() == 0
        assert running.events() == ["engine-start"]


def test_wrong_setting_ends_at_once(tmp_path: Path) -> None:
    with engine(tmp_path, {}, WARMSTACK_ON_MISS="perhaps") as running:
        assert running.process.wait(10) == 2
        wait_until(lambda: "WARMSTACK_ON_MISS" in " ".join(running.lines), seconds=5, what="the sentence")
