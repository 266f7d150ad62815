"""An engine whose every byte a test decides: for answers that a well-behaved server cannot be made to give.

In: a script for each request below /v1. Out: what was received. `/health` is answered on kept connections.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType

Step = bytes | Callable[[], object]
"""Bytes are sent, a call is waited for."""

OK = b"HTTP/1.1 200 OK\r\n"
STREAM = OK + b"Content-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def framed(data: bytes) -> bytes:
    """One piece of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def json_head(length: int) -> bytes:
    return OK + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % length


@dataclass(kw_only=True)
class RawEngine:
    """A context manager. Each request takes the next script, the last one for all that follow; then the
    connection ends: `reset` as a killed process with unread data does it, else in good order.
    """

    scripts: Sequence[Sequence[Step]] = ((),)
    reset: bool = False
    healthy: bool = True
    received: list[bytes] = field(default_factory=list)
    port: int = 0
    _listener: socket.socket | None = None

    def __enter__(self) -> RawEngine:
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=128)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_listening()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def stop_listening(self) -> None:
        """New connections are refused; those that are there go on."""
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            while request := read_request(connection):
                if request.startswith(b"GET /health "):
                    status = b"200 OK" if self.healthy else b"503 Service Unavailable"
                    connection.sendall(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n")
                    continue
                self.received.append(request)
                script = self.scripts[min(len(self.received), len(self.scripts)) - 1]
                for step in script:
                    if isinstance(step, bytes):
                        connection.sendall(step)
                    else:
                        step()
                if self.reset:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return


def read_request(connection: socket.socket) -> bytes:
    """Head and body as they came; nothing when the connection ended."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return b""
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    pieces, size = [head, b"\r\n\r\n", body], len(body)
    while size < length:
        piece = connection.recv(1 << 20)
        if not piece:
            return b""
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)
