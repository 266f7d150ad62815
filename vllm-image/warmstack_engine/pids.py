"""Moves the PID counter of this container past the weight cache's process ids.

CUDA IPC fails with "invalid device context" when exporter and importer have the same PID number, each in its
own PID namespace (measured, vLLM 0.33). In: the numbers of the weight cache. Out: the counter moved, or
`NotPossibleError`. Refuses to know: what runs next. Threads take their ids from the same counter and need no
privilege.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path

# 5,000 threads took 0.43 s on 2 cores, so this is about 2 s. A weight cache on the host has ids far beyond.
MOST_THREADS = 20_000
# Ids that a start of vLLM uses, threads included, until its workers map the weights. Some hundreds are seen.
START_USES = 4_096


class NotPossibleError(Exception):
    """The counter can't be moved; the text says why."""


def threads_needed(*, last: int, highest: int, ranks: tuple[int, ...], pid_max: int) -> int:
    """How many ids must be used up before the next process may start; 0 when it may start now.

    `last` is the id given out last. What must not happen is a rank's id among the next ones; being past the
    highest id of the weight cache makes sure of it. One that lives for months, or on the host, has ids that
    take too long to pass: then it is enough to be past the ranks that come next.
    """
    if last >= highest:
        return 0
    far = highest - last > MOST_THREADS or highest + START_USES >= pid_max
    if not far:
        return highest - last
    target = last
    while near := [rank for rank in ranks if target < rank <= target + START_USES]:
        target = max(near)
    if target > last and target + START_USES >= pid_max:
        raise NotPossibleError(
            f"the weight cache has process {target} and this container is at {last}: the counter can't be "
            f"moved from here (pid_max {pid_max}); recreate the engine's container"
        )
    return target - last


def move_past(highest: int, ranks: tuple[int, ...]) -> float:
    """Use ids up until the next child's is safe. Returns the seconds it took."""
    started = time.monotonic()
    last = _use_one()
    needed = threads_needed(last=last, highest=highest, ranks=ranks, pid_max=_pid_max())
    _use_up(needed, last + needed, _use_one)
    return time.monotonic() - started


def _use_up(needed: int, highest: int, use_one: Callable[[], int]) -> None:
    """Counts what it sees, not what it did: other processes of the container use ids too, and the counter
    wraps.
    """
    last = 0
    for _ in range(needed):
        last = use_one()
        if last >= highest:
            return
    if needed:
        raise NotPossibleError(f"the PID counter is at {last} after {needed} threads, wanted past {highest}")


def collides(pid: int, ranks: tuple[int, ...]) -> bool:
    """The real check, on the child that was started: no rank's id lies among those its own children will
    get.
    """
    return any(pid <= rank <= pid + START_USES for rank in ranks)


def _use_one() -> int:
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    assert thread.native_id is not None
    return thread.native_id


def _pid_max() -> int:
    return int(Path("/proc/sys/kernel/pid_max").read_text())
