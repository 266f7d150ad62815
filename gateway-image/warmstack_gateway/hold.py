"""How much may wait, and how often a request is sent.

In: counts and what became of a sending. Out: yes or no. Refuses to know engines, sockets and clocks.
"""

from dataclasses import dataclass, replace

# A request that kills engines kills two at most.
MOST_SENDINGS = 2


@dataclass(kw_only=True)
class Room:
    """What is kept for requests without an answer: those that wait, and bytes of all bodies in memory."""

    most_waiting: int
    most_bytes: int
    waiting: int = 0
    held_bytes: int = 0

    def enter(self) -> bool:
        """One more waits for an engine; False when there is no place for it."""
        if self.waiting >= self.most_waiting:
            return False
        self.waiting += 1
        return True

    def leave(self) -> None:
        self.waiting -= 1

    def keep(self, size_bytes: int) -> bool:
        """Bytes of a body that was read; False when they are too many, and then they are not counted."""
        if self.held_bytes + size_bytes > self.most_bytes:
            return False
        self.held_bytes += size_bytes
        return True

    def free(self, size_bytes: int) -> None:
        self.held_bytes -= size_bytes


@dataclass(frozen=True, kw_only=True)
class Sendings:
    """How often engines received a request. What never reached one does not count."""

    received: int = 0

    def dropped(self) -> "Sendings":
        """An engine received the request, and nothing of an answer went to the client."""
        return replace(self, received=self.received + 1)

    @property
    def may_go_on(self) -> bool:
        return self.received < MOST_SENDINGS
