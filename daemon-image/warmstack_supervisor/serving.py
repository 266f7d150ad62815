"""Serves /health, /status and /metrics on TCP and on a Unix socket.

In: a function that gives the current `Status`. Out: HTTP. Refuses to know: where a status comes from; it
never asks vLLM, so any number of probes costs vLLM nothing.
"""

import time
from collections.abc import Callable

from warmstack_shared.local_server import JSON, METRICS, LocalServer, Reply, UnixLocalServer
from warmstack_supervisor.status import Status, health_of, metrics_of


class StatusServer(LocalServer):
    def __init__(self, address: tuple[str, int], current: Callable[[], Status]) -> None:
        super().__init__(address, lambda method, path: _answer(method, path, current()))


class UnixStatusServer(UnixLocalServer):
    def __init__(self, path: str, current: Callable[[], Status]) -> None:
        super().__init__(path, lambda method, path: _answer(method, path, current()))


def _answer(method: str, path: str, status: Status) -> Reply:
    now = time.monotonic()
    match method, path:
        case "GET", "/health":
            healthy, sentence = health_of(status, now)
            return Reply(text=sentence + "\n", code=200 if healthy else 503)
        case "GET", "/status":
            return Reply(text=status.to_json(), kind=JSON)
        case "GET", "/metrics":
            return Reply(text=metrics_of(status, now), kind=METRICS)
    return Reply(text="try /health, /status or /metrics\n", code=404)
