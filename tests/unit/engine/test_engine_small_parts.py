"""Small pure parts: back-off, arguments, PIDs, hang watch, memory, status, processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.engine_samples import make_status
from support.stack import ROOT
from warmstack_engine.arguments import without_weight_cache
from warmstack_engine.pids import NotPossibleError, collides, threads_needed
from warmstack_engine.watching import HangWatch, Sample, read_metrics
from warmstack_shared.backoff import BackOff
from warmstack_shared.children import Exit, exit_of
from warmstack_shared.marks import mark_line
from warmstack_shared.processes import all_pids, descendants
from warmstack_supervisor.memory import Room, Supply, _cgroup_limit, judge
from warmstack_supervisor.states import State
from warmstack_supervisor.status import health_of, metrics_of

MIB = 2**20


def test_back_off_grows_is_bounded_and_starts_anew() -> None:
    tries = BackOff(limit=7)
    seconds = []
    for _ in range(7):
        assert not tries.exhausted
        tries.failed()
        seconds.append(tries.seconds)
    assert seconds == [1, 2, 4, 8, 16, 30, 30]
    assert tries.exhausted
    tries.succeeded()
    assert (tries.exhausted, tries.seconds) == (False, 1)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("/m --load-format ipc_cache --port 8000", "/m --port 8000"),
        ("/m --load-format=ipc_cache --model-loader-extra-config={} --x", "/m --x"),
        ("/m --model-loader-extra-config {} --load-format ipc_cache", "/m"),
        ("/m --dtype bfloat16", "/m --dtype bfloat16"),
    ],
)
def test_without_weight_cache(before: str, after: str) -> None:
    assert without_weight_cache(tuple(before.split())) == after.split()


@pytest.mark.parametrize(
    ("last", "highest", "ranks", "pid_max", "needed"),
    [
        (10, 431, (412,), 4194304, 421),
        (431, 431, (412,), 4194304, 0),
        (5000, 431, (412,), 4194304, 0),
        (10, 900_000, (890_000,), 4194304, 0),  # too far to pass, but no rank comes next
        (899_000, 1_200_000, (900_000, 903_000, 950_000), 4194304, 4_000),  # past those that come next
        (10, 32_700, (32_690,), 32_768, 0),  # passing would run into the end of the numbers
    ],
)
def test_threads_needed(last: int, highest: int, ranks: tuple[int, ...], pid_max: int, needed: int) -> None:
    """Case 21."""
    assert threads_needed(last=last, highest=highest, ranks=ranks, pid_max=pid_max) == needed


def test_threads_needed_says_when_it_is_not_possible() -> None:
    with pytest.raises(NotPossibleError, match="32690"):
        threads_needed(last=32_000, highest=32_700, ranks=(32_690,), pid_max=32_768)


@pytest.mark.parametrize(
    ("pid", "ranks", "does"), [(432, (412,), False), (412, (412,), True), (400, (412,), True), (9, (), False)]
)
def test_collides(pid: int, ranks: tuple[int, ...], does: bool) -> None:
    """Case 21."""
    assert collides(pid, ranks) is does


MOVE_AND_LOOK = """
import os
from warmstack_engine.pids import move_past
move_past(400, (399,))
pid = os.posix_spawn("/bin/true", ["/bin/true"], {})
os.waitpid(pid, 0)
print(pid)
"""


def test_move_past_moves_the_real_counter() -> None:
    """In a PID namespace of its own, as in a container: the host's counter may be about to wrap."""
    command = ["unshare", "--pid", "--fork", "--map-root-user", sys.executable, "-c", MOVE_AND_LOOK]
    paths = {**os.environ, "PYTHONPATH": str(ROOT / "vllm-image")}
    done = subprocess.run(command, env=paths, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert 400 < int(done.stdout) < 500


METRICS = """# HELP vllm:num_requests_running x
vllm:num_requests_running{engine="0",model_name="a{b}"} 2.0
vllm:prompt_tokens_total{engine="0",model_name="a{b}"} 46.0
vllm:generation_tokens_total{engine="0",model_name="a{b}"} 56.0
vllm:generation_tokens_created{engine="0",model_name="a{b}"} 1.79e+09
vllm:iteration_tokens_total_count{engine="0",model_name="a{b}"} 10.0
"""


def test_read_metrics() -> None:
    assert read_metrics(METRICS) == Sample(running=2.0, progress=112.0)


@pytest.mark.parametrize(
    ("samples", "hung"),
    [
        ([(0, 5), (0, 5), (0, 5)], False),  # nothing to do
        ([(1, 5), (1, 6), (1, 7)], False),  # it works
        ([(1, 5), (1, 5), (1, 5)], True),
        ([(1, 5), None, None], True),  # does not answer
        ([None, (0, 5), None], False),
    ],
)
def test_hang_watch(samples: list[tuple[int, int] | None], hung: bool) -> None:
    watch = HangWatch(limit_seconds=10, now=0)
    said = None
    for at, sample in enumerate(samples):
        said = watch.hung(Sample(running=sample[0], progress=sample[1]) if sample else None, now=at * 6.0)
    assert bool(said) is hung


def supply(free: int, total: int | None = None) -> Supply:
    return Supply(
        name="/dev/shm", free_bytes=free * MIB, total_bytes=total and total * MIB, raise_it="raise shm_size"
    )


@pytest.mark.parametrize(
    ("supplies", "room"),
    [
        ([supply(300, 1024)], Room()),
        (
            [supply(100, 1024)],
            Room(
                reason="/dev/shm has 100 MiB free, the weights need 257 MiB: "
                "it loads once an engine that maps an old copy has ended, or others make room"
            ),
        ),
        (
            [supply(100), supply(64, 64)],
            Room(reason="/dev/shm has 64 MiB in all, the weights need 257 MiB: raise shm_size", never=True),
        ),
    ],
)
def test_judge_memory(supplies: list[Supply], room: Room) -> None:
    assert judge(257 * MIB, supplies) == room


def test_cgroup_limit_counts_file_cache_as_free(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text(f"{1000 * MIB}\n")
    (tmp_path / "memory.current").write_text(f"{900 * MIB}\n")
    (tmp_path / "memory.stat").write_text(f"anon 1\ninactive_file {300 * MIB}\n")
    found = _cgroup_limit(tmp_path)
    assert found is not None
    assert (found.free_bytes, found.total_bytes) == (400 * MIB, 1000 * MIB)
    (tmp_path / "memory.max").write_text("max\n")
    assert _cgroup_limit(tmp_path) is None
    assert _cgroup_limit(tmp_path / "none") is None


def test_status_has_the_fields_of_the_contract() -> None:
    shown = json.loads(make_status().to_json())
    assert list(shown) == [
        "schema",
        "state",
        "since",
        "model",
        "identity",
        "model_digest",
        "files",
        "bytes_held",
        "rank_pids",
        "highest_pid",
        "restarts",
        "reason",
        "last_error",
        "vllm_version",
        "load_seconds",
        "degraded",
    ]
    assert (shown["state"], shown["rank_pids"]) == ("held", [412])


@pytest.mark.parametrize(
    ("changes", "healthy", "sentence"),
    [
        ({}, True, "269060552 bytes of Org/Name are held"),
        ({"confirmed_at": 60.0}, False, "the weight cache holds the weights, but vLLM does not confirm it"),
        ({"confirmed_at": None}, False, "the weight cache holds the weights, but vLLM does not confirm it"),
        ({"state": State.LOADING}, False, "the weight cache is loading"),
        (
            {"state": State.WAITING, "reason": "no room", "degraded": True},
            False,
            "the weight cache is waiting: no room; engines that mapped the weights keep serving",
        ),
    ],
)
def test_health(changes: dict[str, object], healthy: bool, sentence: str) -> None:
    assert health_of(make_status(**changes), now=101.0) == (healthy, sentence)


def test_metrics_name_the_state() -> None:
    lines = metrics_of(make_status(), now=101.0).splitlines()
    assert 'warmstack_weight_cache_state{state="held"} 1' in lines
    assert 'warmstack_weight_cache_state{state="failed"} 0' in lines
    assert "warmstack_weight_cache_bytes_held 269060552" in lines
    assert "warmstack_weight_cache_healthy 1" in lines


def test_exit_of() -> None:
    assert exit_of(0x0300) == Exit(code=3, signal=None)
    assert str(exit_of(9)) == "killed by SIGKILL"
    assert exit_of(9).status == 137
    assert str(exit_of(247 << 8)) == "exit code 247: a process of it was killed by SIGKILL"
    assert str(exit_of(1 << 8)) == "exit code 1"


def test_mark_line() -> None:
    assert mark_line("ready", 1795970514.9021, {}) == 'warmstack: {"event": "ready", "t": 1795970514.902}'


def test_descendants_reads_names_with_blanks_and_brackets(tmp_path: Path) -> None:
    for pid, name, parent in (
        (1, "init", 0),
        (7, "a) (b", 1),
        (9, "c d", 7),
        (50, "exec", 0),
        (51, "sh", 50),
    ):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} ({name}) S {parent} 1 1 0")
    (tmp_path / "meminfo").write_text("")
    assert descendants(1, tmp_path) == [7, 9]
    assert all_pids(tmp_path) == [1, 7, 9, 50, 51]
