"""`classify_start` as a table: excerpts of real engine logs, and what each proves."""

from __future__ import annotations

import pytest

from warmops.evidence import LogLine, classify_start, has_nursery, nursery_pid, parse_mark

START = 'warmstack: {"event": "engine-start", "t": 100.0, "attempt": 1}'
AGAIN = 'warmstack: {"event": "engine-start", "t": 200.0, "attempt": 2}'
READY = 'warmstack: {"event": "ready", "t": 115.0}'
MARK_MAPPED = (
    'warmstack: {"event": "mapped", "t": 112.0, "bytes": 269060552, "tensors": 272, "seconds": 0.05}'
)
MAPPED = (
    "(EngineCore pid=5001) INFO 11-29 12:00:00 [ipc_loader.py:284] "
    "Mapped 303 tensors from the weight cache daemon (zero_copy mode)"
)
COPIED = MAPPED.replace("zero_copy", "copy")
FALLBACK = (
    "WARNING 11-29 12:00:00 [ipc_loader.py:217] Weight cache unusable (WeightCacheKey mismatch on fields: "
    "['checkpoint']); falling back to disk loading"
)
FALLBACK_LATE = (
    "ERROR 11-29 12:00:00 [ipc_loader.py:228] Weight cache IPC loading failed; falling back to disk loading"
)
DISK = "INFO 11-29 12:00:00 [default_loader.py:502] Loading weights took 1.93 seconds"
MISMATCH = (
    "vllm.model_executor.model_loader.weight_cache.utils.CacheConfigMismatchError: "
    "WeightCacheKey mismatch on fields: ['revision', 'checkpoint']"
)
RELEASED = "WeightCacheUnavailableError: Weight cache daemon error: Weights were released"
NO_SOCKET = "WeightCacheUnavailableError: Weight cache socket /run/warmstack/x is unavailable: [Errno 2]"
WRONG_GPU = (
    "CacheConfigMismatchError: Daemon GPU GPU-1 != engine GPU GPU-2; check the socket path / GPU mapping"
)
SAME_PID = "torch.AcceleratorError: CUDA error: invalid device context"
REFUSED = (
    'warmstack: {"event": "miss", "t": 101.0, "reason": "mismatch", "outcome": "refused", '
    '"sentence": "the weight cache holds aaaa, this engine needs bbbb"}'
)
DAEMON_SENT = "Weight cache target daemon rank 0 sent 303 tensors (+0 aliases) to engine"
NO_LINE = "the log has no line about the weight cache since the engine's last start"
FROM_DISK = "weights were read from disk and the weight cache was not asked"


@pytest.mark.parametrize(
    ("lines", "outcome", "reason", "after_miss"),
    [
        ([START, MAPPED, READY], "hit", None, None),
        ([START, MAPPED, MARK_MAPPED, READY], "hit", None, None),
        ([START, FALLBACK, DISK, READY], "miss", "mismatch", "fallback"),
        ([START, MAPPED, FALLBACK_LATE, DISK, READY], "miss", "unavailable", "fallback"),
        ([START, FALLBACK, DISK, READY, AGAIN, MAPPED], "hit", None, None),
        ([START, MAPPED, READY, AGAIN, FALLBACK, DISK], "miss", "mismatch", "fallback"),
        ([START, READY], "unknown", NO_LINE, None),
        ([START, MAPPED, READY, AGAIN], "unknown", NO_LINE, None),
        ([MAPPED, READY], "unknown", "the log has no engine-start mark", None),
        ([], "unknown", "the log has no engine-start mark", None),
        ([START, DISK, READY], "unknown", FROM_DISK, None),
        ([START, MAPPED, DISK, READY], "unknown", FROM_DISK, None),
        ([START, COPIED, READY], "unknown", "mapped in copy mode, which empties the weight cache", None),
        ([START, MISMATCH], "miss", "mismatch", "refused"),
        ([START, RELEASED], "miss", "released", "refused"),
        ([START, NO_SOCKET], "miss", "unavailable", "refused"),
        ([START, WRONG_GPU], "miss", "wrong_gpu", "refused"),
        ([START, SAME_PID], "miss", "pid_collision", "refused"),
        ([START, REFUSED], "miss", "mismatch", "refused"),
        ([START, DAEMON_SENT, READY], "unknown", NO_LINE, None),
        # A mark alone is our own word, not vLLM's: it makes no hit.
        ([START, MARK_MAPPED, READY], "unknown", NO_LINE, None),
    ],
)  # fmt: skip
def test_outcome(lines: list[str], outcome: str, reason: str | None, after_miss: str | None) -> None:
    """Case 31."""
    evidence = classify_start([LogLine(text=text) for text in lines])
    assert (evidence.outcome, evidence.reason, evidence.after_miss) == (outcome, reason, after_miss)


def test_every_rank_must_have_mapped() -> None:
    one = [LogLine(text=text) for text in (START, MAPPED, READY)]
    two = [LogLine(text=text) for text in (START, MAPPED, MAPPED, READY)]
    assert classify_start(one, ranks=2).reason == "1 of 2 ranks mapped their weights"
    assert classify_start(two, ranks=2).outcome == "hit"


def test_figures_come_from_the_last_start() -> None:
    """Case 32: the daemon logs its line once, whatever happens afterwards."""
    evidence = classify_start(
        [
            LogLine(text=text, t=t)
            for t, text in [
                (100.0, START),
                (110.0, MAPPED),
                (200.0, AGAIN),
                (211.5, MAPPED),
                (211.6, MARK_MAPPED),
            ]
        ]
    )
    assert (evidence.attempt, evidence.tensors, evidence.mapped_bytes) == (2, 303, 269060552)
    assert (evidence.mapped_seconds, evidence.moments["weights"]) == (0.05, 211.5)
    assert not evidence.ready


@pytest.mark.parametrize(
    "text",
    [
        "",
        "warmstack: {broken",
        'warmstack: {"t": 1}',
        'warmstack: {"event": "x"}',
        "warmstack: []",
        '{"t": 1}',
    ],
)
def test_what_only_looks_like_a_mark_is_none(text: str) -> None:
    assert parse_mark(text) is None


def test_vllms_own_loader_maps_all_that_the_weight_cache_held() -> None:
    ready = 'warmstack: {"event": "weight-cache-ready", "t": 101.0, "bytes_held": 16391957056}'
    lines = [LogLine(text=text) for text in (START, ready, MAPPED, READY)]
    assert classify_start(lines).mapped_bytes == 16391957056
    without_hit = [LogLine(text=text) for text in (START, ready, DISK, READY)]
    assert classify_start(without_hit).mapped_bytes is None


def nursery(state: str, pid: int = 9) -> str:
    return f'warmstack: {{"event": "nursery", "t": 1.0, "state": "{state}", "pid": {pid}}}'


@pytest.mark.parametrize(
    ("lines", "pid"),
    [
        ([], None),
        ([START, MAPPED], None),
        ([nursery("importing"), START, nursery("ready")], 9),
        ([nursery("ready"), START, nursery("learned"), AGAIN], 9),
        ([nursery("ready"), START, nursery("gone")], None),
        ([nursery("gone"), START, nursery("importing", 800)], 800),
        ([nursery("off")], None),
    ],
)
def test_the_nursery_that_lives(lines: list[str], pid: int | None) -> None:
    log = [LogLine(text=text) for text in lines]
    assert nursery_pid(log) == pid
    assert has_nursery(log) == any("nursery" in text for text in lines)
