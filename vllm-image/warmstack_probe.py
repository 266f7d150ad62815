"""`warmstack-probe`: questions to what runs in a container, its health checks among them. Fast: a few modules
of the standard library, no imports of ours.

In the engine's container:

    warmstack-probe engine      GET 127.0.0.1:8000/health
    warmstack-probe ask PATH    POST the JSON on stdin to PATH there, print the answer
    warmstack-probe restart     ask PID 1 for a new engine process, print its JSON once the old engine is gone

In the weight cache's container:

    warmstack-probe health      GET /health on the supervisor's socket, a sentence
    warmstack-probe status      GET /status there, the JSON

Exit code 0: the answer was 200. 1: it was not, or none came in time (after `restart`: restart the container
instead). 2: wrong use. What went wrong with `restart` stands on stderr.
"""

import os
import socket
import sys

SUPERVISOR_SOCKET = os.environ.get("WARMSTACK_SUPERVISOR_SOCKET", "/run/warmstack/supervisor.sock")
ENGINE_SOCKET = os.environ.get("WARMSTACK_ENGINE_SOCKET", "/tmp/warmstack-engine.sock")
ENGINE_PORT = int(os.environ.get("WARMSTACK_ENGINE_PORT", "8000"))
TIMEOUT_SECONDS = 3.0
ASK_SECONDS = 180.0
RESTART_SECONDS = 70.0


def main(arguments: list[str]) -> int:
    failures = sys.stderr if arguments == ["restart"] else sys.stdout
    who = "the engine"
    try:
        match arguments:
            case ["engine"]:
                status, body = look_at_engine()
            case ["ask", path]:
                status, body = ask_engine(path, sys.stdin.buffer.read())
            case ["health" | "status"]:
                who = "the supervisor"
                status, body = exchange_locally(SUPERVISOR_SOCKET, f"GET /{arguments[0]}", TIMEOUT_SECONDS)
            case ["restart"]:
                who = "the engine's PID 1"
                status, body = exchange_locally(ENGINE_SOCKET, "POST /restart", RESTART_SECONDS)
            case _:
                usage = "warmstack-probe engine|health|status|restart, or ask PATH"
                print(f"error: usage: {usage}", file=sys.stderr)
                return 2
    except OSError as error:
        print(f"{who} does not answer: {error or type(error).__name__}", file=failures)
        return 1
    print(body.strip() or f"HTTP {status}", file=sys.stdout if status == 200 else failures)
    return 0 if status == 200 else 1


def look_at_engine() -> tuple[int, str]:
    with socket.create_connection(("127.0.0.1", ENGINE_PORT), timeout=TIMEOUT_SECONDS) as connection:
        return exchange(connection, "GET /health")


def ask_engine(path: str, body: bytes) -> tuple[int, str]:
    with socket.create_connection(("127.0.0.1", ENGINE_PORT), timeout=TIMEOUT_SECONDS) as connection:
        connection.settimeout(ASK_SECONDS)
        return exchange(connection, f"POST {path}", body)


def exchange_locally(path: str, request: str, seconds: float) -> tuple[int, str]:
    """As `exchange`, on a Unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(seconds)
        connection.connect(path)
        return exchange(connection, request)


def exchange(connection: socket.socket, request: str, body: bytes = b"") -> tuple[int, str]:
    """Status and body of an answer. HTTP/1.0 asks the server to close, so the end of the answer is the end of
    the stream.
    """
    lines = [f"{request} HTTP/1.0", "Host: localhost"]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)
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
