"""One request as the relay has it in hand: its body while it may have to be sent, and where its answer is.

In: the request, the room for bodies. Out: its bytes; whether an answer has begun or was cut. Refuses to know
engines.
"""

from aiohttp.web import BaseRequest

from warmstack_gateway.hold import Room
from warmstack_gateway.marks import emit
from warmstack_gateway.refusals import TOO_LARGE, TOO_MANY, Refused
from warmstack_gateway.settings import MOST_BODY_BYTES


class Asked:
    def __init__(self, came: BaseRequest, room: Room) -> None:
        self.came = came
        self.body = b""
        self.begun = False
        self.was_cut = False
        self.stopping = False
        self._room = room
        self._kept_bytes = 0

    async def read_body(self) -> None:
        """All of it. Raises Refused when it is too large or there is no room for it."""
        pieces: list[bytes] = []
        while piece := await self.came.content.readany():
            if self._kept_bytes + len(piece) > MOST_BODY_BYTES:
                raise Refused(TOO_LARGE)
            if not self._room.keep(len(piece)):
                raise Refused(TOO_MANY)
            self._kept_bytes += len(piece)
            pieces.append(piece)
        self.body = b"".join(pieces)

    def free(self) -> None:
        """The body is not needed any more."""
        self._room.free(self._kept_bytes)
        self._kept_bytes = 0
        self.body = b""

    def begin(self) -> None:
        self.begun = True
        self.free()

    def cut(self, engine: str, reason: str) -> None:
        self.was_cut = True
        emit("answer-cut", engine=engine, reason=reason)
