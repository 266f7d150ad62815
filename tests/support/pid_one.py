"""Runs the two PID-1 programs of the images with the fake `vllm` on PATH, and reads the marks they print."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from support.engine_samples import make_model, make_status
from support.waiting import free_port, wait_until
from warmstack_shared.checkpoint import files_stamp, read_digest
from warmstack_shared.processes import descendants
from warmstack_supervisor.serving import UnixStatusServer
from warmstack_supervisor.status import Status

ROOT = Path(__file__).parents[2]
CODE = os.pathsep.join(
    str(ROOT / name) for name in ("vllm-image", "vllm-image/plugin", "daemon-image", "tests/fakes/site")
)


class Program:
    """A running program: its marks so far, its other lines, its process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.marks: list[dict[str, Any]] = []
        self.lines: list[str] = []
        self.status_port = 0
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("warmstack: "):
                self.marks.append(json.loads(line.removeprefix("warmstack: ")))
            else:
                self.lines.append(line.rstrip("\n"))

    def events(self) -> list[str]:
        return [mark["event"] for mark in self.marks]

    def wait_for(self, event: str, count: int = 1, seconds: float = 20, **fields: Any) -> dict[str, Any]:
        def found() -> list[dict[str, Any]]:
            fits = [m for m in self.marks if m["event"] == event and fields.items() <= m.items()]
            return fits[count - 1 :] if len(fits) >= count else []

        def look() -> list[dict[str, Any]]:
            if not (seen := found()):
                raise LookupError(f"marks {self.marks}, lines {self.lines[-5:]}")
            return seen

        return wait_until(look, seconds=seconds, what=f"{event} {fields}, {count} times")[0]

    def below(self) -> list[int]:
        return descendants(self.process.pid)

    def end(self) -> int:
        """SIGTERM, and what it ends with."""
        self.process.terminate()
        return self.process.wait(20)

    def close(self) -> None:
        if self.process.poll() is None:
            for pid in [*self.below(), self.process.pid]:
                with suppress(ProcessLookupError):  # it ended by itself meanwhile
                    os.kill(pid, 9)
            self.process.wait(10)
        self._thread.join(10)
        assert self.process.stdout is not None
        self.process.stdout.close()


# Waits that are long for the sake of real engines, as the modules name them.
_WAITS = {
    "warmstack_shared.backoff": {"FIRST_SECONDS": 0.1},
    "warmstack_engine.loop": {"STOP_SECONDS": 1.0},
    "warmstack_supervisor.loop": {"STOP_SECONDS": 1.0},
    "warmstack_supervisor.facts": {"POLL_HELD_SECONDS": 0.3},
}
_RUN = """
import importlib, json, runpy, sys
program = sys.argv[1]
for name, waits in json.loads(sys.argv[2]).items():
    if name.startswith(("warmstack_shared", program)):
        vars(importlib.import_module(name)).update(waits)
sys.argv = [program, *sys.argv[3:]]
runpy.run_module(program, run_name="__main__", alter_sys=True)
"""


@contextmanager
def program(
    module: str, arguments: list[str], environment: dict[str, str], folder: Path, wish: dict[str, Any]
) -> Iterator[Program]:
    """`python -m module arguments` with short waits, whose `vllm` is the fake one, bent by `wish`."""
    bin_folder = folder / "bin"
    bin_folder.mkdir(exist_ok=True)
    vllm = bin_folder / "vllm"
    vllm.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{ROOT / "tests/fakes/vllm.py"}" "$@"\n')
    vllm.chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, "-c", _RUN, module, json.dumps(_WAITS), *arguments],
        env={
            **environment,
            "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": environment.get("PYTHONPATH", CODE),
            "FAKE_VLLM": json.dumps(wish),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    running = Program(process)
    try:
        yield running
    finally:
        running.close()


@contextmanager
def engine(
    folder: Path, wish: dict[str, Any], status: dict[str, Any] | None = None, **changes: str
) -> Iterator[Program]:
    """`warmstack-engine` with a supervisor's socket that shows `status`, and variables changed."""
    model = make_model(folder / "model")
    shown = make_status(files=files_stamp(model), model_digest=read_digest(model), **(status or {}))
    path = str(folder / "supervisor.sock")
    environment = {
        "WARMSTACK_IDENTITY": "a" * 64,
        "WARMSTACK_MODEL": "Org/Name",
        "WARMSTACK_MODEL_DIGEST": shown.model_digest,
        "WARMSTACK_MODEL_PATH": str(model),
        "WARMSTACK_SUPERVISOR_SOCKET": path,
        "WARMSTACK_WAIT_SECONDS": "0",
        "WARMSTACK_ON_MISS": "refuse",
        "WARMSTACK_HANG_SECONDS": "0",
        "WARMSTACK_MAX_RESTARTS": "2",
        "WARMSTACK_ENGINE_SOCKET": str(folder / "engine.sock"),
        "WARMSTACK_ENGINE_STATUS_PORT": str(free_port()),
        "WARMSTACK_CARE_SECONDS": "0.5",
        "WARMSTACK_IMPORTS_LIST": str(folder / "imports.json"),
    } | changes
    arguments = [str(model), "--port", str(free_port()), "--load-format", "ipc_cache"]
    with (
        supervisor(path, shown),
        program("warmstack_engine", arguments, environment, folder, wish) as running,
    ):
        running.status_port = int(environment["WARMSTACK_ENGINE_STATUS_PORT"])
        yield running


@contextmanager
def supervisor(path: str, shown: Status) -> Iterator[None]:
    with UnixStatusServer(path, lambda: shown) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
