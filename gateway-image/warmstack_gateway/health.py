"""One kept connection to an engine's /health.

In: an address. Out: the status of each answer; and at once, without a question, that the connection was lost,
which is how the end of an engine is heard of first. Refuses to know what follows from it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

MOST_ANSWER_BYTES = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A whole answer: `end` is its length in bytes, `keep` whether another may follow on the connection."""

    status: int
    end: int
    keep: bool


def read_answer(data: bytes) -> Answer | None:
    """The answer at the start of `data`; None when it is not whole. Raises ValueError when it is no HTTP."""
    head, found, _ = data.partition(b"\r\n\r\n")
    if not found:
        if len(data) > MOST_ANSWER_BYTES:
            raise ValueError("no end of the headers")
        return None
    first, *lines = head.split(b"\r\n")
    words = first.split(b" ", 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
        raise ValueError(f"no HTTP: {first[:40]!r}")
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)
    }
    length = headers.get(b"content-length", b"")
    # A body without a length would have to be read by its own rules: a new connection next time is simpler.
    keep = (
        words[0] == b"HTTP/1.1" and headers.get(b"connection", b"").lower() != b"close" and length.isdigit()
    )
    size = int(length) if length.isdigit() else 0
    end = len(head) + len(found) + size
    return Answer(status=int(words[1]), end=end, keep=keep) if len(data) >= end else None


class HealthConnection(asyncio.Protocol):
    """A connection that is made; `lost` is called once, when it has ended for any reason but `close`."""

    def __init__(self, host: str, lost: Callable[[], None]) -> None:
        self._request = f"GET /health HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
        self._lost = lost
        self._data = b""
        self._waiting: asyncio.Future[int] | None = None
        self._transport: asyncio.Transport | None = None

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    async def ask(self) -> int:
        """The status of one answer. Raises OSError when the connection ends instead. One caller at a time."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the connection has ended")
        self._data = b""
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(self._request)
        return await self._waiting

    def data_received(self, data: bytes) -> None:
        self._data += data
        try:
            answer = read_answer(self._data)
        except ValueError as error:
            self._fail(ConnectionAbortedError(str(error)))
            return
        if answer is None:
            return
        if not answer.keep:
            self.close()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(answer.status)

    def connection_lost(self, exc: Exception | None) -> None:
        was_ours = self._transport is None
        self._transport = None
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(exc or ConnectionResetError("closed before it answered"))
        elif not was_ours:
            self._lost()

    def close(self) -> None:
        """Let it go; nobody is told."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()

    def _fail(self, error: Exception) -> None:
        self.close()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)
