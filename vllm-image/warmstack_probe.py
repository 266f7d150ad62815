"""`warmstack-probe`: the health checks of the containers. Fast: a few modules of the standard library, no
imports of ours.

    warmstack-probe engine    GET 127.0.0.1:8000/health                           (the engine's container)
    warmstack-probe health    GET /health on the supervisor's socket, a sentence   (the weight cache's
    container) warmstack-probe status    GET /status there, the JSON

Exit code 0: the answer was 200. 1: it was not, or none came in time. 2: wrong use.
"""

import os
import socket
import sys

SUPERVISOR_SOCKET = os.environ.get("WARMSTACK_SUPERVISOR_SOCKET", "/run/warmstack/supervisor.sock")
ENGINE_PORT = int(os.environ.get("WARMSTACK_ENGINE_PORT", "8000"))
TIMEOUT_SECONDS = 3.0


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or arguments[0] not in ("engine", "health", "status"):
        print("error: usage: warmstack-probe engine|health|status", file=sys.stderr)
        return 2
    what = arguments[0]
    path = "/status" if what == "status" else "/health"
    try:
        status, body = ask_engine(path) if what == "engine" else ask_supervisor(path)
    except OSError as error:
        who = "the engine" if what == "engine" else "the supervisor"
        print(f"{who} does not answer: {error or type(error).__name__}")
        return 1
    print(body.strip() or f"HTTP {status}")
    return 0 if status == 200 else 1


def ask_engine(path: str) -> tuple[int, str]:
    with socket.create_connection(("127.0.0.1", ENGINE_PORT), timeout=TIMEOUT_SECONDS) as connection:
        return ask(connection, path)


def ask_supervisor(path: str) -> tuple[int, str]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(TIMEOUT_SECONDS)
        connection.connect(SUPERVISOR_SOCKET)
        return ask(connection, path)


def ask(connection: socket.socket, path: str) -> tuple[int, str]:
    """Status and body of a GET. HTTP/1.0 asks the server to close, so the end of the answer is the end of the
    stream.
    """
    connection.sendall(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
    answer = b""
    while chunk := connection.recv(65536):
        answer += chunk
    head, _, body = answer.partition(b"\r\n\r\n")
    try:
        return int(head.split(None, 2)[1]), body.decode(errors="replace")
    except (IndexError, ValueError):
        raise OSError(f"not HTTP: {head[:60]!r}") from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
