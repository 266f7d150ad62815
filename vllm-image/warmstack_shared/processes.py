"""Reads /proc: which processes there are, which of them descend from one.

In: a folder like /proc. Out: numbers. Refuses to know: signals; it ends nothing.
"""

import os
from pathlib import Path

PROC = Path("/proc")


def all_pids(proc: Path = PROC) -> list[int]:
    return sorted(int(path.name) for path in proc.iterdir() if path.name.isdigit())


def parents(proc: Path = PROC) -> dict[int, int]:
    """pid → parent's pid. Processes that end while it reads are left out."""
    found = {}
    for pid in all_pids(proc):
        try:
            stat = (proc / str(pid) / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        # "pid (name) state ppid …"; the name may hold blanks and brackets, so read after the last bracket.
        found[pid] = int(stat.rpartition(")")[2].split()[1])
    return found


def own_pids(proc: Path = PROC) -> list[int]:
    """Every process of this container; on a host, where others live beside us, this and those below it."""
    own = os.getpid()
    return all_pids(proc) if own == 1 else sorted({own, *descendants(own, proc)})


def descendants(ancestor: int, proc: Path = PROC) -> list[int]:
    """All processes below `ancestor`. In a container those that `docker exec` started are not below PID 1."""
    parent_of = parents(proc)
    return sorted(pid for pid in parent_of if pid != ancestor and _descends(pid, ancestor, parent_of))


def _descends(pid: int, ancestor: int, parent_of: dict[int, int]) -> bool:
    seen = set()
    while pid in parent_of and pid not in seen:
        seen.add(pid)
        pid = parent_of[pid]
        if pid == ancestor:
            return True
    return False


def command_of(pid: int, proc: Path = PROC) -> str:
    """The command line for people; empty for a zombie or a process that is gone."""
    try:
        return (
            (proc / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        )
    except (FileNotFoundError, ProcessLookupError):
        return ""
