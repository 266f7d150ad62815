"""Answers HTTP on TCP and on a Unix socket, one request after the other. Standard library only.

In: a function from method and path to a `Reply`. Out: HTTP. Refuses to know: what is asked for.
One thread for each socket, none for a request: a thread for each would use up the container's process ids,
which engines have to pass (docs/architecture.md, "Engine").
"""

import contextlib
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socketserver import TCPServer

from warmstack_shared.errors import Failure

REQUEST_SECONDS = 2.0  # one slow client holds the others up for so long at most
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
METRICS = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, kw_only=True)
class Reply:
    text: str
    code: int = 200
    kind: str = TEXT


Answer = Callable[[str, str], Reply]


class LocalServer(HTTPServer):
    def __init__(self, address: tuple[str, int], answer: Answer) -> None:
        self.answer = answer
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # HTTPServer's own asks the name service who we are, which may take seconds.
        TCPServer.server_bind(self)


class UnixLocalServer(LocalServer):
    address_family = socket.AF_UNIX

    def __init__(self, path: str, answer: Answer) -> None:
        _remove_stale(path)
        super().__init__(path, answer)  # type: ignore[arg-type]  # a Unix address is a path

    def server_bind(self) -> None:
        self.socket.bind(self.server_address)

    def get_request(self) -> tuple[socket.socket, tuple[str, int]]:
        connection, _ = self.socket.accept()
        return connection, ("local", 0)


class _Handler(BaseHTTPRequestHandler):
    server: LocalServer
    timeout = REQUEST_SECONDS  # socketserver sets it on the connection

    def do_GET(self) -> None:
        self._reply(self.server.answer("GET", self.path))

    def do_POST(self) -> None:
        self._reply(self.server.answer("POST", self.path))

    def _reply(self, reply: Reply) -> None:
        body = reply.text.encode()
        self.send_response(reply.code)
        self.send_header("Content-Type", reply.kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # the client did not wait
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Probes come every few seconds; the log is for what happens."""


def serve(server: LocalServer) -> None:
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 1.0}, daemon=True).start()


def _remove_stale(path: str) -> None:
    """Remove the socket file of a server that is gone; refuse to take the place of one that lives."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(REQUEST_SECONDS)
        try:
            probe.connect(path)
        except FileNotFoundError:
            return
        except ConnectionRefusedError:
            Path(path).unlink(missing_ok=True)
            return
    raise Failure(f"another one serves on {path}", hint="one to a container", exit_code=3)
