"""Asks vLLM's ranks how many bytes they hold, and which processes they are.

In: the folder of their sockets. Out: `Holding`, or why there is no answer. Refuses to know: weights, engines.
vLLM's protocol (0.32, 0.33; weight_cache/protocol.py): 8 bytes of length, then pickle; one client at a time,
same user. A rank that serves an engine lets us wait some milliseconds; we never make an engine wait longer
than `ASK_SECONDS`, since the connection is closed then, which a rank takes for a client that went away.
"""

import io
import pickle
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ASK_SECONDS = 3.0
_LENGTH = struct.Struct("!Q")
_MOST_BYTES = 65536
_REQUEST = pickle.dumps({"cmd": "get_memory"})


class NoAnswerError(Exception):
    """A rank did not say what it holds."""


@dataclass(frozen=True, kw_only=True)
class Holding:
    bytes: int
    pids: tuple[int, ...]


def ask_ranks(folder: Path, ranks: int) -> Holding:
    """Bytes of all ranks, and their processes. Raises `NoAnswerError` unless exactly `ranks` ranks of the
    model answer.

    A socket file that nobody listens on was left by a dead one (vLLM removes it at the next start) and is
    passed over.
    """
    answers = {path: found for path in sorted(folder.glob("*.sock")) if (found := _ask(path))}
    # A draft model for speculative decoding is held by processes of its own; ranks are those of the model.
    answering = sum(1 for path in answers if not path.name.endswith("_draft.sock"))
    if answering != ranks:
        raise NoAnswerError(f"{answering} of {ranks} ranks say what they hold")
    return Holding(
        bytes=sum(size for size, _ in answers.values()),
        pids=tuple(sorted(pid for _, pid in answers.values())),
    )


def _ask(path: Path) -> tuple[int, int] | None:
    """Bytes and process id of the rank behind a socket."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(ASK_SECONDS)
            connection.connect(str(path))
            connection.sendall(_LENGTH.pack(len(_REQUEST)) + _REQUEST)
            return _memory_of(_receive(connection)), _peer_pid(connection)
    except (ConnectionRefusedError, FileNotFoundError):
        return None
    except OSError as error:
        raise NoAnswerError(f"{path.name}: {error or type(error).__name__}") from error


def _peer_pid(connection: socket.socket) -> int:
    """The process that listens, as the kernel knows it in our own PID namespace."""
    format_ = struct.Struct("3i")
    pid, _, _ = format_.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, format_.size))
    return int(pid)


def _receive(connection: socket.socket) -> Any:
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    if length > _MOST_BYTES:
        raise NoAnswerError(f"an answer of {length} bytes")
    return _PlainUnpickler(io.BytesIO(_exactly(connection, length))).load()


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = connection.recv(count - len(data))
        if not chunk:
            raise NoAnswerError("a rank closed the connection")
        data += chunk
    return data


def _memory_of(answer: Any) -> int:
    if not isinstance(answer, dict) or answer.get("status") != "ok":
        raise NoAnswerError(f"a rank answered {answer!r}")
    return int(answer["memory_bytes"])


class _PlainUnpickler(pickle.Unpickler):
    """The answer is a dict of plain values; anything else is refused, so that no answer can run code here."""

    def find_class(self, module: str, name: str) -> Any:
        raise NoAnswerError(f"a rank answered with {module}.{name}")
