"""CUDA IPC between two PID namespaces: the fault of equal PID numbers, with torch alone.

    python3 cuda_ipc.py            as root; prints one JSON object: importer's id → what came of the mapping

The exporter has process id 500 in its namespace; one importer 500 in its own, another 900. Same
IPC namespace, same /dev/shm, same GPU. Each process starts bare: CUDA must not be there before the fork.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EXPORTER = 500
IMPORTERS = (500, 900)


def main() -> None:
    if len(sys.argv) > 1:
        as_process(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
        return
    folder = Path(tempfile.mkdtemp())
    exporter = start("export", EXPORTER, folder)
    wait_for(folder / "handle", exporter)
    found = {}
    for pid in IMPORTERS:
        done = start("import", pid, folder).communicate(timeout=120)[0]
        found[str(pid)] = json.loads(done.splitlines()[-1])
    (folder / "end").touch()
    exporter.communicate(timeout=60)
    print(json.dumps({"exporter": EXPORTER, "importers": found}))


def start(role: str, pid: int, folder: Path) -> subprocess.Popen[str]:
    command = [
        "unshare",
        "--pid",
        "--fork",
        "--mount-proc",
        sys.executable,
        __file__,
        role,
        str(pid),
        str(folder),
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def as_process(role: str, pid: int, folder: Path) -> None:
    """In a new PID namespace, as its first process: go on as process `pid`."""
    Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        export(folder) if role == "export" else map_it(folder)
    finally:
        sys.stdout.flush()
        os._exit(0)


def export(folder: Path) -> None:
    import torch
    from torch.multiprocessing.reductions import reduce_tensor

    tensor = torch.full((1 << 20,), 7, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    part = folder / "handle.part"
    part.write_bytes(pickle.dumps(reduce_tensor(tensor)))
    part.rename(folder / "handle")
    while not (folder / "end").exists():
        time.sleep(0.1)


def map_it(folder: Path) -> None:
    import torch

    torch.cuda.init()
    rebuild, arguments = pickle.loads((folder / "handle").read_bytes())
    begun = time.monotonic()
    try:
        value = int(rebuild(*arguments)[0].item())
        outcome = f"maps, value {value}"
    except Exception as error:
        outcome = str(error).splitlines()[0]
    print(json.dumps({"pid": os.getpid(), "outcome": outcome, "seconds": round(time.monotonic() - begun, 3)}))


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    while not path.exists():
        if process.poll() is not None:
            raise SystemExit("the exporter ended")
        time.sleep(0.1)


if __name__ == "__main__":
    main()
