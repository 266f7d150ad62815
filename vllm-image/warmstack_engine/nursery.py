"""The nursery: a process that has imported what `vllm serve` needs, and forks an engine when it is asked.

    python -m warmstack_engine.nursery SOCKET LIST     started by `nurse`; SOCKET is a file descriptor

In: messages of PID 1. Out: engines, each in a session of its own and a child of PID 1; answers on the socket.
Refuses to know: weights, arguments, when an engine is wanted. It serves nobody and holds no GPU, so it stays
what it was: any number of engines come out of the same imports. It ends when its socket closes.
"""

import array
import contextlib
import gc
import importlib
import json
import os
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from warmstack_engine.late_imports import Recorder, read_record
from warmstack_engine.preimport import (
    SEEDS,
    UnfitError,
    import_ahead,
    read_list,
    try_out,
    write_list,
)
from warmstack_shared.forking import fork, why_unfit
from warmstack_shared.inspection import inspect_in_child
from warmstack_shared.openmp import end_openmp_threads

MESSAGE_BYTES = 1 << 20
_MOST_HANDLES = 2


@dataclass(frozen=True, kw_only=True)
class Born:
    """Returned in the forked process: what it is to become."""

    arguments: tuple[str, ...]
    record: int


class Nursery:
    def __init__(self, channel: socket.socket, list_path: Path) -> None:
        self._channel = channel
        self._list_path = list_path

    def run(self) -> Born | int:
        """Until the socket closes (an exit code), or, in a forked process, `Born`."""
        started = time.monotonic()
        try:
            self._import(SEEDS)
            self._import(read_list(self._list_path).learned)
            self._settle()
            if why := why_unfit(thorough=True):
                raise UnfitError(why)
            self._say(event="ready", seconds=round(time.monotonic() - started, 3), modules=len(sys.modules))
            return self._serve()
        except UnfitError as error:
            if error.module:
                write_list(self._list_path, read_list(self._list_path).with_unfit(error.module))
            self._say(event="unfit", sentence=str(error), hopeless=error.module in SEEDS)
            return 1

    def _serve(self) -> Born | int:
        while True:
            text, handles = _receive(self._channel)
            if not text:
                return 0
            message = json.loads(text)
            if message["do"] == "learn":
                self._learn(handles[0])
            elif born := self._fork(message["arguments"], handles):
                return born

    def _import(self, names: tuple[str, ...]) -> list[str]:
        return import_ahead(names, read_list(self._list_path).unfit)

    def _learn(self, record: int) -> None:
        """Import what an engine had to import by itself, and remember it for the next container."""
        started = time.monotonic()
        before = read_list(self._list_path)
        after = try_out(read_record(record), before)
        os.close(record)
        if after != before:
            write_list(self._list_path, after)
        imported = import_ahead(after.learned, after.unfit)
        self._settle()
        self._say(event="learned", seconds=round(time.monotonic() - started, 3), modules=len(imported))

    def _fork(self, arguments: list[str], handles: list[int]) -> Born | None:
        """Twice: the one in between ends at once, so that the engine becomes a child of PID 1."""
        if why := why_unfit():
            raise UnfitError(why)
        read_end, write_end = os.pipe()
        between = fork()
        if between == 0:
            engine = fork()
            if engine == 0:
                self._channel.close()
                _take_over(output=handles[0], close=(read_end, write_end))
                return Born(arguments=tuple(arguments), record=handles[1])
            os.write(write_end, str(engine).encode())
            os._exit(0)
        os.close(write_end)
        engine = int(os.read(read_end, 32) or b"0")
        os.waitpid(between, 0)
        for handle in (read_end, *handles):
            os.close(handle)
        self._say(event="forked", pid=engine)
        return None

    def _settle(self) -> None:
        """What is here now is never collected: a collection in an engine would write to every shared page."""
        end_openmp_threads()
        gc.collect()
        gc.freeze()

    def _say(self, **message: Any) -> None:
        self._channel.send(json.dumps(message).encode())


def become_vllm(born: Born) -> NoReturn:
    """As the `vllm` command does it. Never returns: Python ends as after any program."""
    sys.meta_path.insert(0, Recorder(born.record))
    if (registry := sys.modules.get("vllm.model_executor.models.registry")) is not None:
        inspect_in_child(registry)
    sys.argv = ["vllm", *born.arguments]
    _set_title(" ".join(sys.argv))
    sys.exit(importlib.import_module("vllm.entrypoints.cli.main").main())


def _take_over(*, output: int, close: tuple[int, ...]) -> None:
    """A session of its own, no input, both outputs into the pipe of PID 1."""
    os.setsid()
    sys.stdout.flush()
    sys.stderr.flush()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    for handle in (nothing, output, *close):
        os.close(handle)


def _set_title(title: str) -> None:
    """What `ps` and `docker top` show, where vLLM's own helper for it is installed."""
    with contextlib.suppress(ImportError):
        importlib.import_module("setproctitle").setproctitle(title)


def _receive(channel: socket.socket) -> tuple[bytes, list[int]]:
    """One message and the file descriptors that came with it; empty when the other side is gone."""
    handles = array.array("i")
    space = socket.CMSG_SPACE(_MOST_HANDLES * handles.itemsize)
    text, ancillary, _, _ = channel.recvmsg(MESSAGE_BYTES, space)
    for _, _, data in ancillary:
        handles.frombytes(data[: len(data) - len(data) % handles.itemsize])
    return text, list(handles)


def main(arguments: list[str]) -> int:
    channel = socket.socket(fileno=int(arguments[0]))
    end = Nursery(channel, Path(arguments[1])).run()
    if isinstance(end, Born):
        become_vllm(end)
    return end


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
