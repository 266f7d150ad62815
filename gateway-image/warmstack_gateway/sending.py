"""One sending of a request to one engine, and its answer on the way to the client.

In: an engine, what was asked with its whole body. Out: the answer that went to the client; or `Unreached`,
`Dropped` when nothing of one did, so that it may be asked elsewhere. Refuses to know who waits and how long.
"""

import asyncio
import io
from typing import Protocol

from aiohttp import (
    ClientConnectorError,
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    ConnectionTimeoutError,
    DummyCookieJar,
    TCPConnector,
)
from aiohttp.web import BaseRequest, Response, StreamResponse
from yarl import URL

from warmstack_gateway.engine import CONNECT_SECONDS, Engine
from warmstack_gateway.headers import for_client, for_engine
from warmstack_gateway.refusals import CUT, CUT_BY_US
from warmstack_gateway.sse import EventStream, dialect_of

LONGEST_HEADER_BYTES = 1 << 20  # as Caddy has it
MOST_WHOLE_BYTES = 8_000_000  # of a JSON answer that is read to its end before anything of it goes out
_ENGINE_ERRORS = (ClientError, OSError, TimeoutError)
_ERRORS_OF_THE_DYING = (500, 502, 503)


class Unreached(Exception):
    """The engine never saw the request."""


class Dropped(Exception):
    """The engine may have seen it, and nothing of an answer went to the client."""


class Asked(Protocol):
    """A request that may be sent more than once, and what this module tells about its answer."""

    @property
    def came(self) -> BaseRequest: ...

    @property
    def body(self) -> bytes: ...

    @property
    def stopping(self) -> bool:
        """The gateway wants to end: what runs is cancelled, and the client reads why."""

    def begin(self) -> None:
        """Something of the answer goes out now: it cannot be sent again."""

    def cut(self, engine: str, reason: str) -> None:
        """An answer that had begun was ended in its middle."""


def open_session() -> ClientSession:
    """A new connection for each request costs a fraction of a millisecond, and none can be one that a former
    engine left half open.
    """
    return ClientSession(
        connector=TCPConnector(force_close=True, limit=0),
        timeout=ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
        cookie_jar=DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent", "Content-Type"),
        max_line_size=LONGEST_HEADER_BYTES,
        max_field_size=LONGEST_HEADER_BYTES,
    )


async def send(session: ClientSession, engine: Engine, asked: Asked) -> StreamResponse:
    """Raises Unreached and Dropped."""
    answer = await _headers_of_answer(session, engine, asked)
    try:
        if answer.status in _ERRORS_OF_THE_DYING and not await engine.look():
            # An engine whose core has died says 500 to what it had, and then ends.
            raise Dropped(f"it said {answer.status} and is not ready")
        if answer.content_type == "text/event-stream" and answer.status == 200:
            return await _pass_stream(engine, answer, asked)
        if asked.came.method == "HEAD" or answer.status in (204, 304):
            return await _pass_headers(answer, asked)
        if answer.content_type == "application/json":
            return await _pass_json(engine, answer, asked)
        return await _pass_body(engine, answer, asked, piece=b"")
    finally:
        answer.close()


async def _headers_of_answer(session: ClientSession, engine: Engine, asked: Asked) -> ClientResponse:
    host, port = engine.address
    bracketed = f"[{host}]" if ":" in host else host
    try:
        return await session.request(
            asked.came.method,
            URL(f"http://{bracketed}:{port}{asked.came.raw_path}", encoded=True),
            headers=for_engine(asked.came.headers, asked.came.headers.items()),
            data=io.BytesIO(asked.body) if asked.body else None,
            allow_redirects=False,
        )
    except (ClientConnectorError, ConnectionTimeoutError) as error:
        raise Unreached(_words(error)) from None
    except _ENGINE_ERRORS as error:
        raise Dropped(_words(error)) from None


async def _pass_stream(engine: Engine, answer: ClientResponse, asked: Asked) -> StreamResponse:
    """Each event at once. Headers go out with the first one: until then nothing has begun."""
    stream = EventStream(dialect_of(asked.came.rel_url.raw_path))
    response = _response(answer)
    response.headers.popall("Content-Length", None)
    reason: str | None = None
    while True:
        try:
            piece = await answer.content.readany()
        except _ENGINE_ERRORS as error:
            reason = _words(error)
            break
        except asyncio.CancelledError:
            if not (asked.stopping and response.prepared):
                raise
            reason = "the gateway is stopping"
            break
        if not piece:
            break
        events = stream.feed(piece)
        if stream.complaint is not None and not await engine.look():
            # What an engine whose core has died says to whom it served is no sentence for a person.
            events = stream.withdraw(events)
            reason = "it said that something went wrong, and is not ready"
        if events:
            if not response.prepared:
                asked.begin()
                await response.prepare(asked.came)
            await response.write(events)
        if reason is not None:
            break
    if not response.prepared:
        raise Dropped(reason or "the stream ended before its first event")
    if stream.finished:
        await response.write(stream.last_words)
    else:
        asked.cut(engine.name, reason or "the stream ended without its last word")
        await response.write(stream.error_event(CUT_BY_US if asked.stopping else CUT))
    await response.write_eof()
    return response


async def _pass_headers(answer: ClientResponse, asked: Asked) -> StreamResponse:
    response = Response(status=answer.status, reason=answer.reason)
    response.headers.extend(for_client(answer.headers, answer.headers.items()))
    asked.begin()
    await response.prepare(asked.came)
    await response.write_eof()
    return response


async def _pass_json(engine: Engine, answer: ClientResponse, asked: Asked) -> StreamResponse:
    """Read whole before anything goes out, so that one which is cut can be sent again; a huge one is not."""
    whole = bytearray()
    try:
        while piece := await answer.content.readany():
            whole += piece
            if len(whole) > MOST_WHOLE_BYTES:
                break
    except _ENGINE_ERRORS as error:
        raise Dropped(_words(error)) from None
    return await _pass_body(engine, answer, asked, piece=bytes(whole))


async def _pass_body(engine: Engine, answer: ClientResponse, asked: Asked, *, piece: bytes) -> StreamResponse:
    """As it comes, after `piece`. One that is cut ends the client's connection in its middle: there is no
    other way to say so.
    """
    response = _response(answer)
    if answer.content.at_eof():
        response.content_length = len(piece)
    asked.begin()
    await response.prepare(asked.came)
    while piece or not answer.content.at_eof():
        if piece:
            await response.write(piece)
        try:
            piece = await answer.content.readany()
        except _ENGINE_ERRORS as error:
            asked.cut(engine.name, _words(error))
            if asked.came.transport is not None:
                asked.came.transport.abort()
            return response
    await response.write_eof()
    return response


def _response(answer: ClientResponse) -> StreamResponse:
    response = StreamResponse(status=answer.status, reason=answer.reason)
    response.headers.extend(for_client(answer.headers, answer.headers.items()))
    return response


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__
