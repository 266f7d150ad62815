"""Ends OpenMP's idle threads before a fork. Standard library only.

In: this process. Out: a process whose children may use OpenMP. Refuses to know: who forks.
"""

import ctypes
from pathlib import Path

_PAUSE_HARD = 2  # OpenMP 5.0, omp_pause_resource_t


def end_openmp_threads(maps: Path = Path("/proc/self/maps")) -> None:
    """libgomp has no fork handler: a child of a process with its threads hangs in its first parallel loop.

    Ended this way the threads come back when they are needed. vLLM 0.33 does the same before it forks.
    """
    for path in {line.split()[-1] for line in maps.read_text().splitlines() if "libgomp" in line}:
        library = ctypes.CDLL(path)
        if hasattr(library, "omp_pause_resource_all"):
            library.omp_pause_resource_all(_PAUSE_HARD)
