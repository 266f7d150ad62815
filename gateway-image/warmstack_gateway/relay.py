"""The relay: a request comes from Caddy, waits for an engine where it must, and gets one answer.

In: HTTP on a Unix socket, the engines, what may wait. Out: an engine's answer or a refusal. Refuses to know
keys, sizes that are announced, and paths outside /v1: Caddy has looked at those.
"""

import asyncio
import time
import traceback
from pathlib import Path

from aiohttp import ClientSession
from aiohttp.web import BaseRequest, Response, Server, ServerRunner, StreamResponse, UnixSite

from warmstack_gateway.asked import Asked
from warmstack_gateway.engine import Engine
from warmstack_gateway.engines import Engines
from warmstack_gateway.hold import Room, Sendings
from warmstack_gateway.marks import emit
from warmstack_gateway.metrics import Counts
from warmstack_gateway.refusals import BROKEN, NOT_READY, STOPPED, STOPPING, TOO_MANY, Refusal, Refused
from warmstack_gateway.sending import LONGEST_HEADER_BYTES, Dropped, Unreached, send

READY_SECONDS = 1.0  # longest answer of /ready


class Relay:
    def __init__(self, engines: Engines, room: Room, hold_seconds: float, session: ClientSession) -> None:
        self.counts = Counts()
        self._engines = engines
        self._room = room
        self._hold_seconds = hold_seconds
        self._session = session
        self._running: dict[asyncio.Task[None], Asked] = {}

    async def handle(self, came: BaseRequest) -> StreamResponse:
        if came.rel_url.raw_path == "/ready":
            return await self._ready()
        task = asyncio.current_task()
        assert task is not None
        asked = self._running[task] = Asked(came, self._room)
        try:
            response = await self._answer(asked)
        except Refused as refused:
            self.counts.requests["refused"] += 1
            return _refuse(refused.refusal)
        except (asyncio.CancelledError, ConnectionResetError):
            if asked.stopping and not asked.begun:
                self.counts.requests["refused"] += 1
                return _refuse(STOPPING)
            self.counts.requests["gone"] += 1
            raise
        except Exception:  # a fault of the relay: the log has its traceback, the client a sentence
            if asked.begun:
                raise
            traceback.print_exc()
            self.counts.requests["refused"] += 1
            return _refuse(BROKEN)
        finally:
            asked.free()
            del self._running[task]
        self.counts.requests["cut" if asked.was_cut else "answered"] += 1
        return response

    def end_all(self) -> None:
        """The gateway stops: whoever waits or reads is told so, each in the way that is left."""
        for task, asked in self._running.items():
            asked.stopping = True
            task.cancel()

    async def _ready(self) -> Response:
        if await self._engines.any_ready_now(READY_SECONDS):
            return Response(status=200, headers={"Content-Type": "application/json"}, body=b'{"status":"ok"}')
        return _refuse(NOT_READY)

    async def _answer(self, asked: Asked) -> StreamResponse:
        await asked.read_body()
        sendings = Sendings()
        deadline = self._deadline()
        tries = 0
        while True:
            if tries > len(self._engines.all) and _now() >= deadline:
                raise Refused(_without_an_answer(sendings))  # engines that look ready and take nothing
            tries += 1
            engine = self._engines.choose() or await self._wait(deadline, sendings)
            # Nothing is awaited between choice and count: who drains an engine sees every request.
            with engine.counted():
                try:
                    response = await send(self._session, engine, asked)
                except Unreached as error:
                    engine.suspect(str(error))
                except Dropped as error:
                    engine.suspect(str(error))
                    sendings = sendings.dropped()
                    emit("request-dropped", engine=engine.name, times=sendings.received, reason=str(error))
                    if not sendings.may_go_on:
                        raise Refused(STOPPED) from None
                    self.counts.sent_again += 1
                    # It waits anew: the first engine may have worked on it for longer than a hold.
                    deadline = self._deadline()
                else:
                    if asked.was_cut and not asked.stopping:
                        self.counts.cut += 1
                        engine.suspect("it cut an answer")
                    return response

    async def _wait(self, deadline: float, sendings: Sendings) -> Engine:
        """Until an engine is ready. Raises Refused when the hold ends, or when too many wait already."""
        if not self._room.enter():
            raise Refused(TOO_MANY)
        started = time.monotonic()
        try:
            engine = await self._engines.wait(deadline)
        finally:
            self._room.leave()
            self.counts.was_held(time.monotonic() - started)
        if engine is None:
            raise Refused(_without_an_answer(sendings))
        return engine

    def _deadline(self) -> float:
        return _now() + self._hold_seconds


async def serve(relay: Relay, path: Path) -> ServerRunner:
    """Listen on a Unix socket. A client that goes away cancels what is done for it."""
    server = Server(
        relay.handle,
        handler_cancellation=True,
        access_log=None,  # Caddy writes one line for each request
        auto_decompress=False,
        max_line_size=LONGEST_HEADER_BYTES,
        max_field_size=LONGEST_HEADER_BYTES,
    )
    runner = ServerRunner(server, shutdown_timeout=1.0)
    await runner.setup()
    path.unlink(missing_ok=True)
    await UnixSite(runner, path, backlog=1024).start()
    path.chmod(0o600)
    return runner


def _now() -> float:
    return asyncio.get_running_loop().time()


def _without_an_answer(sendings: Sendings) -> Refusal:
    return STOPPED if sendings.received else NOT_READY


def _refuse(refusal: Refusal) -> Response:
    return Response(status=refusal.status, headers=refusal.headers, body=refusal.body)
