"""Serves /health, /status and /metrics on TCP and on a Unix socket.

In: a function that gives the current `Status`. Out: HTTP. Refuses to know: where a status comes from; it
never asks vLLM, so any number of probes costs vLLM nothing.
One thread for each of the two sockets, none for a request: a thread for each would use up the container's
process ids, which engines have to pass (docs/architecture.md, "Engine").
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socketserver import TCPServer

from warmstack_shared.errors import Failure
from warmstack_supervisor.status import Status, health_of, metrics_of

REQUEST_SECONDS = 2.0  # one slow client holds the others up for so long at most


class StatusServer(HTTPServer):
    def __init__(self, address: tuple[str, int], current: Callable[[], Status]) -> None:
        self.current = current
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        TCPServer.server_bind(
            self
        )  # HTTPServer's own asks the name service who we are, which may take seconds


class UnixStatusServer(StatusServer):
    address_family = socket.AF_UNIX

    def __init__(self, path: str, current: Callable[[], Status]) -> None:
        _remove_stale(path)
        super().__init__(path, current)  # type: ignore[arg-type]  # a Unix address is a path

    def server_bind(self) -> None:
        self.socket.bind(self.server_address)

    def get_request(self) -> tuple[socket.socket, tuple[str, int]]:
        connection, _ = self.socket.accept()
        return connection, ("local", 0)


class _Handler(BaseHTTPRequestHandler):
    server: StatusServer
    timeout = REQUEST_SECONDS  # socketserver sets it on the connection

    def do_GET(self) -> None:
        status, now = self.server.current(), time.monotonic()
        if self.path == "/health":
            healthy, sentence = health_of(status, now)
            self._answer(200 if healthy else 503, "text/plain; charset=utf-8", sentence + "\n")
        elif self.path == "/status":
            self._answer(200, "application/json", status.to_json())
        elif self.path == "/metrics":
            self._answer(200, "text/plain; version=0.0.4; charset=utf-8", metrics_of(status, now))
        else:
            self._answer(404, "text/plain; charset=utf-8", "try /health, /status or /metrics\n")

    def _answer(self, code: int, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # the probe did not wait
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Probes come every few seconds; the log is for what happens."""


def serve(server: StatusServer) -> None:
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 1.0}, daemon=True).start()


def _remove_stale(path: str) -> None:
    """Remove the socket file of a supervisor that is gone; refuse to take the place of one that lives."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(REQUEST_SECONDS)
        try:
            probe.connect(path)
        except FileNotFoundError:
            return
        except ConnectionRefusedError:
            Path(path).unlink(missing_ok=True)
            return
    raise Failure(f"another supervisor serves on {path}", hint="one weight-cache to a project", exit_code=3)
