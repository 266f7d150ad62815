"""Processes inside a container, and what they use: by id, never by name.

In: a container id. Out: process ids, memory, open files, use of /dev/shm. All of it is asked inside the
container, where its own user may read its own processes: no root on the host is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from warmops.changes import ENGINE, Container
from warmops.docker import Docker
from warmops.drill_plan import Footprint
from warmops.project import Project

_PROBE_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class Process:
    """A process as /proc/<pid>/stat tells it; `begun` (clock ticks after boot) tells reused ids apart."""

    pid: int
    parent: int
    begun: int


def processes(docker: Docker, container: str) -> tuple[Process, ...]:
    """All processes in the container's PID namespace, the probe's own among them."""
    told = docker.execute(
        container, "sh", "-c", "cat /proc/[0-9]*/stat", check=False, timeout_seconds=_PROBE_SECONDS
    )
    return tuple(found for line in told.stdout.splitlines() if (found := parse_stat(line)) is not None)


def parse_stat(line: str) -> Process | None:
    """One line of /proc/<pid>/stat; a command name may hold spaces and brackets: cut at the last one."""
    head, bracket, tail = line.rpartition(")")
    fields = tail.split()
    if not bracket or len(fields) < 20:
        return None
    return Process(pid=int(head.split()[0]), parent=int(fields[1]), begun=int(fields[19]))


def below_first(found: Sequence[Process]) -> tuple[Process, ...]:
    """Descendants of the container's process 1. What `docker exec` started has parent 0 and is left out."""
    parents = {process.pid: process.parent for process in found}
    return tuple(process for process in found if process.pid != 1 and _reaches(1, process.pid, parents))


def tree_of(found: Sequence[Process], root: int) -> tuple[Process, ...]:
    """The process `root` and its descendants."""
    parents = {process.pid: process.parent for process in found}
    return tuple(process for process in found if _reaches(root, process.pid, parents))


def kill_by_id(
    docker: Docker, container: str, pids: Iterable[int], *, signal: str = "KILL"
) -> tuple[float, float]:
    """A signal from the side; between which unix seconds. An id that is gone already is no error."""
    clock = "date +%s.%N"
    command = f"{clock}; kill -{signal} {' '.join(str(pid) for pid in pids)} 2>/dev/null; {clock}"
    told = docker.execute(container, "sh", "-c", command, quiet=False, timeout_seconds=_PROBE_SECONDS)
    begin, end = map(float, told.stdout.split())
    return begin, end


def host_processes(
    docker: Docker, container: str, among: Iterable[Process] | None = None
) -> Mapping[int, int]:
    """Host process ids of a container with the tick at which each began; empty where the host hides them.

    `among`: only those processes, which are known by their ids inside the container.
    """
    told = docker.capture("top", container, "-eo", "pid", check=False)
    pids = [int(word) for word in told.stdout.split() if word.isdigit()]
    if among is not None:
        inside = {process.pid for process in among}
        pids = [pid for pid in pids if _pid_inside(pid) in inside]
    return {pid: begun for pid in pids if (begun := _begun_on_host(pid)) is not None}


def engine_processes(project: Project) -> Mapping[int, int]:
    """Host processes of the engine that serves now, without the container's first one and the nursery."""
    engine = project.container(ENGINE)
    if engine is None or not engine.running:
        return {}
    return host_processes(project.docker, engine.id, among=engine_tree(project, engine))


def engine_tree(project: Project, engine: Container) -> tuple[Process, ...]:
    """vLLM's processes, by their ids inside the container: what the last start began, and all below it."""
    serve = project.evidence_of(engine).mark("serve")
    if serve is None:
        return ()
    return tree_of(processes(project.docker, engine.id), int(serve.fields["pid"]))


def still_alive(recorded: Mapping[int, int]) -> tuple[int, ...]:
    """Those of the recorded host processes that live on (same id, same beginning)."""
    return tuple(pid for pid, begun in recorded.items() if _begun_on_host(pid) == begun)


def memory_bytes(docker: Docker, container: str) -> int | None:
    """Proportional set size (PSS) of the container's processes in bytes; None when nothing could be read."""
    command = "grep -h '^Pss:' /proc/[0-9]*/smaps_rollup 2>/dev/null"
    told = docker.execute(container, "sh", "-c", command, check=False, timeout_seconds=_PROBE_SECONDS)
    kibibytes = [int(line.split()[1]) for line in told.stdout.splitlines() if line.startswith("Pss:")]
    return sum(kibibytes) * 1024 if kibibytes else None


def memory_of_project(project: Project) -> dict[str, int | None]:
    """PSS of each running service in bytes."""
    running = [container for container in project.containers() if container.running]
    return {c.service: memory_bytes(project.docker, c.id) for c in sorted(running, key=lambda c: c.service)}


def footprint(docker: Docker, container: str) -> Footprint:
    """What the weight cache uses now: /dev/shm, open files, memory."""
    used = docker.execute(
        container, "df", "-B1", "--output=used", "/dev/shm", check=False, timeout_seconds=_PROBE_SECONDS
    )
    files = docker.execute(
        container, "sh", "-c", "ls /proc/[0-9]*/fd 2>/dev/null", check=False, timeout_seconds=_PROBE_SECONDS
    )
    shm = [int(word) for word in used.stdout.split() if word.isdigit()]
    count = sum(1 for line in files.stdout.splitlines() if line.strip().isdigit())
    return Footprint(
        shm_bytes=shm[0] if shm else None,
        open_files=count or None,
        daemon_bytes=memory_bytes(docker, container),
    )


def _reaches(ancestor: int, pid: int, parents: Mapping[int, int]) -> bool:
    seen: set[int] = set()
    while pid not in (0, ancestor) and pid in parents and pid not in seen:
        seen.add(pid)
        pid = parents[pid]
    return pid == ancestor


def _pid_inside(pid: int) -> int | None:
    """The number that a host's process has in its innermost PID namespace."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    line = next((line for line in status.splitlines() if line.startswith("NSpid:")), "")
    return int(line.split()[-1]) if line else None


def _begun_on_host(pid: int) -> int | None:
    try:
        found = parse_stat(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
    return found.begun if found is not None else None
