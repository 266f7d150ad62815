"""The control socket: `warmstack-gateway-route` asks and sets here which engine new requests go to.

In: one line: `show`, `set NAME …`, `pause SECONDS` or `resume`. Out: one line of JSON: the state, or `error`
with an exit code for the command. Whoever may open the socket may ask: it lies in the container and belongs
to its user.
"""

import asyncio
import contextlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from warmstack_gateway.engines import Engines
from warmstack_gateway.hold import Room
from warmstack_gateway.metrics import Counts
from warmstack_gateway.route import WrongOrder

LONGEST_LINE_BYTES = 4096
LINE_SECONDS = 5.0
WRONG_INPUT, NOT_POSSIBLE = 2, 3
# Whoever pauses renews it while it works: one that was killed holds up nobody for longer.
LONGEST_PAUSE_SECONDS = 60


class Control:
    def __init__(self, engines: Engines, room: Room, counts: Counts) -> None:
        self._engines = engines
        self._room = room
        self._counts = counts

    def answer(self, line: str) -> dict[str, Any]:
        match line.split():
            case ["show"]:
                return self._state()
            case ["set", *names]:
                return self._set(names)
            case ["pause", seconds]:
                return self._pause(seconds)
            case ["resume"]:
                self._engines.resume("asked for")
                return self._state()
        return _error(
            WRONG_INPUT, "say `show`, `set` and the names of engines, `pause` and seconds, or `resume`"
        )

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One question on one connection."""
        try:
            async with asyncio.timeout(LINE_SECONDS):
                line = await reader.readuntil(b"\n")
            answer = self.answer(line.decode())
        except (ValueError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            answer = _error(
                WRONG_INPUT, f"one line of text is expected, of at most {LONGEST_LINE_BYTES} bytes"
            )
        with contextlib.suppress(OSError):
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        writer.close()

    def _state(self) -> dict[str, Any]:
        return {
            "schema": 1,
            "order": self._engines.order,
            "engines": {
                engine.name: {
                    "ready": engine.ready,
                    "in_flight": engine.in_flight,
                    "since": datetime.fromtimestamp(engine.since, UTC).isoformat(timespec="milliseconds"),
                }
                for engine in self._engines.all
            },
            "waiting": self._room.waiting,
            "held_bytes": self._room.held_bytes,
            "paused_seconds": round(self._engines.paused_seconds, 3),
            "cut": self._counts.cut,
        }

    def _set(self, names: list[str]) -> dict[str, Any]:
        try:
            self._engines.set_order(names)
        except WrongOrder as error:
            return _error(WRONG_INPUT, str(error))
        except OSError as error:
            return _error(NOT_POSSIBLE, f"the order cannot be kept, so it stays as it was: {error}")
        return self._state()

    def _pause(self, seconds: str) -> dict[str, Any]:
        if not seconds.isdecimal() or not 0 < int(seconds) <= LONGEST_PAUSE_SECONDS:
            return _error(
                WRONG_INPUT,
                f"{seconds} is no time for a pause: whole seconds from 1 to {LONGEST_PAUSE_SECONDS}",
            )
        self._engines.pause(int(seconds))
        return self._state()


async def serve(control: Control, path: Path) -> asyncio.Server:
    path.unlink(missing_ok=True)
    server = await asyncio.start_unix_server(control.talk, path, limit=LONGEST_LINE_BYTES)
    path.chmod(0o600)
    return server


def _error(exit_code: int, sentence: str) -> dict[str, Any]:
    return {"schema": 1, "error": sentence, "exit_code": exit_code}
