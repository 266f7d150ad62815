"""The Unix socket on which the engine's PID 1 takes orders; `warmstack-engine-restart` speaks to it.

In: POST /restart. Out: `RestartAsked` in the inbox, and an answer once the old engine is gone.
Refuses to know: how an engine is stopped. The socket is in the container's own /tmp: no other container and
nobody in the network can ask.
"""

import json
import queue
from typing import Any

from warmstack_shared.inbox import Inbox
from warmstack_shared.local_server import JSON, Answer, Reply

# Longer than a stop takes at most: the grace, then the kernel's time to end what was killed.
ANSWER_SECONDS = 60.0


class RestartAsked:
    """An event: a new engine process is wanted. Whoever takes it calls `done` once the old one is gone."""

    def __init__(self) -> None:
        self._answer: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def done(self, **facts: Any) -> None:
        self._answer.put(facts)

    def wait(self, seconds: float) -> dict[str, Any] | None:
        try:
            return self._answer.get(timeout=seconds)
        except queue.Empty:
            return None


def control(inbox: Inbox) -> Answer:
    """What the socket answers."""

    def answer(method: str, path: str) -> Reply:
        if (method, path) != ("POST", "/restart"):
            return Reply(text="try POST /restart\n", code=404)
        asked = RestartAsked()
        inbox.put(asked)
        facts = asked.wait(ANSWER_SECONDS)
        if facts is None:
            return Reply(text=f"the engine was not stopped within {ANSWER_SECONDS:.0f} s\n", code=504)
        return Reply(text=json.dumps(facts) + "\n", kind=JSON)

    return answer
