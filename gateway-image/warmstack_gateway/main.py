"""`warmstack-gateway`, PID 1 of the gateway: the relay, its control socket, its metrics, and Caddy in front.

It ends when Caddy ends, with Caddy's exit code, and Docker starts the container again. At SIGTERM Caddy takes
no new connection and waits for what runs; shortly before its patience ends, what still runs is told why.
"""

import asyncio
import os
import resource
import sys
from collections.abc import Callable

from warmstack_gateway import caddy, control, relay, scrape
from warmstack_gateway.caddy import Caddy
from warmstack_gateway.control import Control
from warmstack_gateway.engines import Engines
from warmstack_gateway.hold import Room
from warmstack_gateway.metrics import EngineNow, metrics_text
from warmstack_gateway.relay import Relay
from warmstack_gateway.sending import open_session
from warmstack_gateway.settings import Settings, WrongSetting, read_settings

MOST_FILES = 65_536
END_ALL_SECONDS = 6.0  # after SIGTERM; grace_period in the Caddyfile is longer


def main() -> int:
    try:
        settings = read_settings(os.environ)
    except WrongSetting as wrong:
        print(f"error: {wrong}", file=sys.stderr)
        return 2
    _raise_file_limit()
    return asyncio.run(run(settings))


def _raise_file_limit() -> None:
    """Each request takes two sockets, and a container may start with a limit of 1024 open files."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if most == resource.RLIM_INFINITY else min(most, MOST_FILES)
    if now != resource.RLIM_INFINITY and now < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


async def run(settings: Settings) -> int:
    """Until Caddy ends; its exit code."""
    engines = Engines(settings.upstreams, settings.data / "route.json")
    room = Room(most_waiting=settings.most_waiting, most_bytes=settings.most_held_bytes)
    async with open_session() as session:
        the_relay = Relay(engines, room, settings.hold_seconds, session)
        engines.start()
        runners = [await relay.serve(the_relay, settings.sockets / "relay.sock")]
        control_server = await control.serve(
            Control(engines, room, the_relay.counts), settings.sockets / "control.sock"
        )
        if settings.metrics:
            scraped = await scrape.serve(settings.metrics, lambda: _text(the_relay, engines, room))
            runners += [scraped] if scraped else []
        front = Caddy(
            caddy.command_of(settings.caddyfile),
            caddy.environment_of(os.environ, settings.data, settings.sockets),
            stopping=lambda: _later(END_ALL_SECONDS, the_relay.end_all),
        )
        try:
            return await front.wait()
        finally:
            control_server.close()
            the_relay.end_all()
            for runner in runners:
                await runner.cleanup()
            await engines.stop()


def _later(seconds: float, do: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(seconds, do)


def _text(the_relay: Relay, engines: Engines, room: Room) -> str:
    now = [EngineNow(name=one.name, ready=one.ready, in_flight=one.in_flight) for one in engines.all]
    return metrics_text(the_relay.counts, now, waiting=room.waiting, held_bytes=room.held_bytes)
