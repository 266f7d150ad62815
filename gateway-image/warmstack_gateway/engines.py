"""All engines and the order in which new requests take them.

In: the upstreams, a file that keeps the order. Out: an engine that is ready, now or as soon as there is one.
While requests are paused there is none, however many are ready. Refuses to know requests.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from warmstack_gateway.engine import Engine
from warmstack_gateway.marks import emit
from warmstack_gateway.route import Order, WrongOrder, choose, reorder, restored, route_text
from warmstack_gateway.settings import Upstream


class Engines:
    def __init__(self, upstreams: Sequence[Upstream], kept: Path) -> None:
        self._engines = {upstream.name: Engine(upstream, self._changed) for upstream in upstreams}
        self._kept = kept
        self._waiters: set[asyncio.Future[None]] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._pause: asyncio.TimerHandle | None = None
        self.order: Order = self._restore()

    @property
    def all(self) -> tuple[Engine, ...]:
        """In the order of preference."""
        return tuple(self._engines[name] for name in self.order)

    def start(self) -> None:
        self._tasks = [asyncio.create_task(engine.watch()) for engine in self.all]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for engine in self.all:
            engine.close()

    def choose(self) -> Engine | None:
        """The engine for a new request; None when no engine is ready, or while they are paused."""
        if self._pause is not None:
            return None
        name = choose(self.order, lambda one: self._engines[one].ready)
        return self._engines[name] if name is not None else None

    async def wait(self, deadline: float) -> Engine | None:
        """As `choose`, as soon as there is one; None when there was none until `deadline` (loop time)."""
        while (engine := self.choose()) is None:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
            try:
                async with asyncio.timeout_at(deadline):
                    await waiter
            except TimeoutError:
                return self.choose()
            finally:
                self._waiters.discard(waiter)
        return engine

    async def any_ready_now(self, seconds: float) -> bool:
        """Ask them now. Names without an address are left to the regular look: asking may take long."""
        looks = [asyncio.create_task(one.look()) for one in self.all if not one.has_no_name]
        try:
            for done in asyncio.as_completed(looks, timeout=seconds):
                if await done:
                    return True
        except TimeoutError:
            return False
        finally:
            for look in looks:
                look.cancel()  # the question itself is shielded
        return False

    @property
    def paused_seconds(self) -> float:
        """How long new requests are held yet though engines are ready; 0 when they are not."""
        if self._pause is None:
            return 0.0
        return max(0.0, self._pause.when() - asyncio.get_running_loop().time())

    def pause(self, seconds: float) -> None:
        """Send nothing new to any engine for so long from now, however long an earlier pause had to go.

        An engine that becomes ready ends it: what it was there for is over, whoever asked for it.
        """
        if self._pause is None:
            emit("pause", seconds=seconds)
        else:
            self._pause.cancel()
        self._pause = asyncio.get_running_loop().call_later(seconds, self.resume, "its time is over")

    def resume(self, reason: str) -> None:
        """End a pause; nothing where there is none."""
        if self._pause is None:
            return
        self._pause.cancel()
        self._pause = None
        emit("resume", reason=reason)
        self._wake()

    def set_order(self, wanted: Sequence[str]) -> None:
        """Keep it first, then go by it. Raises WrongOrder, or OSError when it cannot be kept."""
        order = reorder(self.order, wanted)
        _write_whole(self._kept, route_text(order))
        self.order = order
        emit("order", order=order)

    def _restore(self) -> Order:
        known = tuple(self._engines)
        try:
            return restored(known, self._kept.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return known
        except (OSError, WrongOrder, UnicodeDecodeError) as error:
            emit("order-lost", file=str(self._kept), reason=str(error))
            return known

    def _changed(self, engine: Engine) -> None:
        if engine.ready:
            self.resume("an engine has become ready")
            self._wake()

    def _wake(self) -> None:
        """Whoever waits looks again."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)


def _write_whole(path: Path, text: str) -> None:
    """The old content or the new one, whatever happens to this process. No fsync: it may take a second, in
    which no stream would move, and after a crash of the host every order is as good.
    """
    beside = path.with_suffix(".new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)
