"""A request with a bound on its time, over TCP on this machine or over a Unix socket. Standard library only.

In: where to ask. Out: status and body; `NoAnswerError` for anything that is no HTTP answer in time.
Refuses to know: what is asked for.
"""

import http.client
import socket
from dataclasses import dataclass


class NoAnswerError(Exception):
    """Nobody listens, or the answer did not come in time."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    status: int
    body: bytes


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_seconds: float) -> None:
        super().__init__("localhost", timeout=timeout_seconds)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def get_tcp(port: int, path: str, timeout_seconds: float) -> Answer:
    """GET http://127.0.0.1:`port``path`. `timeout_seconds` bounds each wait for the network."""
    return _ask(http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_seconds), "GET", path)


def post_tcp(port: int, path: str, body: bytes, timeout_seconds: float) -> Answer:
    """The same with a body of JSON."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_seconds)
    return _ask(connection, "POST", path, body)


def get_unix(socket_path: str, path: str, timeout_seconds: float) -> Answer:
    return _ask(_UnixConnection(socket_path, timeout_seconds), "GET", path)


def _ask(connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None = None) -> Answer:
    headers = {"Content-Type": "application/json"} if body is not None else {}
    try:
        connection.request(method, path, body=body, headers=headers)
        response = connection.getresponse()
        return Answer(status=response.status, body=response.read())
    except (OSError, http.client.HTTPException) as error:
        raise NoAnswerError(str(error) or type(error).__name__) from error
    finally:
        connection.close()
