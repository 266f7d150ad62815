"""Names of the files in shared memory. Imports nothing heavy: the supervisor uses it too.

In: the path of a weight cache socket. Out: the prefix of the segments that belong to it.
Refuses to know: what is in a segment.
"""

import hashlib
import os
from pathlib import Path

SHM_FOLDER = Path(os.environ.get("WARMSTACK_SHM_FOLDER", "/dev/shm"))


def segment_prefix(socket_path: str) -> str:
    """Prefix of every segment that the daemon behind `socket_path` makes.

    It is made of the whole path and not of the file name: the name tells the device only, and two weight
    caches of one device (another identity, another folder) share /dev/shm without knowing of each other's
    lock.
    """
    return "warmstack-weights-" + hashlib.sha256(socket_path.encode()).hexdigest()[:24] + "."


def segments_of(socket_path: str, folder: Path = SHM_FOLDER) -> list[Path]:
    """The segments that belong to `socket_path`. Delete one only while holding that socket's lock."""
    prefix = segment_prefix(socket_path)
    return sorted(path for path in folder.iterdir() if path.name.startswith(prefix))
