"""Removes segments in shared memory that a dead `vllm preload` left (CPU platform).

In: the folder of vLLM's sockets. Out: the names removed. Refuses to know: living daemons: it deletes only
what belongs to a socket whose lock it holds itself, and a living daemon holds that lock.
"""

import fcntl
import os
from pathlib import Path

from warmstack_shared.segment_names import segments_of


def remove_stale_segments(socket_folder: Path) -> list[str]:
    """Makes the free space of /dev/shm true before the next load. Engines that map a removed segment keep
    it.
    """
    removed: list[str] = []
    for lock in sorted(socket_folder.glob("*.lock")):
        handle = os.open(lock, os.O_RDWR)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            for segment in segments_of(str(lock).removesuffix(".lock")):
                segment.unlink()
                removed.append(segment.name)
        finally:
            os.close(handle)
    return removed
