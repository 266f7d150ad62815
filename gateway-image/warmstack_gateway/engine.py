"""One engine: whether it is ready, where it is, how many requests it has.

In: its name and address, what requests see of it. Out: `ready`, and a call when that changes. It looks by
itself about twice a second, and at once when somebody suspects it. Refuses to know requests and the others.
"""

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Iterator

from warmstack_gateway.health import HealthConnection
from warmstack_gateway.marks import emit
from warmstack_gateway.settings import Upstream

LOOK_SECONDS = 0.5
LONGEST_BACK_OFF_SECONDS = (
    2.0  # while the name does not resolve; a container has its name long before it is ready
)
CONNECT_SECONDS = 1.0
ANSWER_SECONDS = 2.0


class Engine:
    def __init__(self, upstream: Upstream, changed: Callable[["Engine"], None]) -> None:
        self.name = upstream.name
        self.ready = False
        self.since = time.time()
        self.in_flight = 0
        self.address = (upstream.host, upstream.port)  # where the last connection went
        self._upstream = upstream
        self._changed = changed
        self._connection: HealthConnection | None = None
        self._look: asyncio.Task[bool] | None = None
        self._resolving: asyncio.Task[tuple[str, int]] | None = None
        self._unresolved = 0  # looks in a row for which the name had no address
        self._wake = asyncio.Event()

    async def watch(self) -> None:
        """Look for ever."""
        while True:
            await self.look()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause_seconds):
                    await self._wake.wait()
            self._wake.clear()

    async def look(self) -> bool:
        """Ask now, or share the question that is being asked. Whether it is ready."""
        if self._look is None or self._look.done():
            self._look = asyncio.create_task(self._ask())
        return await asyncio.shield(self._look)

    @property
    def has_no_name(self) -> bool:
        """The name had no address at the last look: its container does not run."""
        return self._unresolved > 0

    def suspect(self, reason: str) -> None:
        """A request failed here: nothing goes to this engine until it has answered on a new connection."""
        self._let_go()
        self._set(ready=False, reason=reason)
        self._wake.set()

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Around everything from the choice of this engine to the end of its answer."""
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1

    def close(self) -> None:
        self._let_go()

    @property
    def _pause_seconds(self) -> float:
        return min(LOOK_SECONDS * 2.0 ** max(0, self._unresolved - 1), LONGEST_BACK_OFF_SECONDS)

    async def _ask(self) -> bool:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                connection = await self._connected()
                status = await connection.ask()
        except (OSError, TimeoutError) as error:
            self._let_go()
            self._set(ready=False, reason=_words(error))
        else:
            self._set(ready=status == 200, reason=f"/health says {status}")
        return self.ready

    async def _connected(self) -> HealthConnection:
        if self._connection is not None and self._connection.usable:
            return self._connection
        self.address = await self._resolve()
        async with asyncio.timeout(CONNECT_SECONDS):
            _, self._connection = await asyncio.get_running_loop().create_connection(
                lambda: HealthConnection(self._upstream.host, self._lost), *self.address
            )
        return self._connection

    async def _resolve(self) -> tuple[str, int]:
        """The address of the name. A question that hangs is never asked a second time beside itself: each
        takes a thread.
        """
        if self._resolving is None or self._resolving.done():
            self._resolving = asyncio.create_task(_look_up(self._upstream))
        try:
            address = await asyncio.shield(self._resolving)
        except (socket.gaierror, asyncio.CancelledError):  # no address, or none within the time for a look
            self._unresolved += 1
            raise
        self._unresolved = 0
        return address

    def _lost(self) -> None:
        """The kept connection ended while nobody asked: the engine ended, or it only closed an idle one."""
        self._set(ready=False, reason="it closed the connection")
        self._wake.set()

    def _let_go(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _set(self, *, ready: bool, reason: str) -> None:
        if ready is self.ready:
            return
        self.ready = ready
        self.since = time.time()
        emit("engine", name=self.name, ready=ready, reason=None if ready else reason)
        self._changed(self)


async def _look_up(upstream: Upstream) -> tuple[str, int]:
    found = await asyncio.get_running_loop().getaddrinfo(
        upstream.host, upstream.port, type=socket.SOCK_STREAM
    )
    host, port = found[0][4][:2]
    return str(host), int(port)


def _words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) or type(error).__name__
