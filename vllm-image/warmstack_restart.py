"""`warmstack-engine-restart`: asks the container's PID 1 for a new engine process. Standard library only.

It returns once the old engine is gone, with JSON on stdout; the new one is being started then.
Exit code 0: it is. 1: PID 1 does not answer, or could not stop the engine: restart the container instead.
"""

import os
import socket
import sys

ENGINE_SOCKET = os.environ.get("WARMSTACK_ENGINE_SOCKET", "/tmp/warmstack-engine.sock")
ANSWER_SECONDS = 70.0


def main() -> int:
    try:
        status, body = ask(ENGINE_SOCKET)
    except OSError as error:
        print(f"the engine's PID 1 does not answer: {error or type(error).__name__}", file=sys.stderr)
        return 1
    print(body.strip(), file=sys.stdout if status == 200 else sys.stderr)
    return 0 if status == 200 else 1


def ask(path: str) -> tuple[int, str]:
    """Status and body. HTTP/1.0 asks the server to close, so the stream ends with the answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ANSWER_SECONDS)
        connection.connect(path)
        connection.sendall(b"POST /restart HTTP/1.0\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    head, _, body = answer.partition(b"\r\n\r\n")
    try:
        return int(head.split(None, 2)[1]), body.decode(errors="replace")
    except (IndexError, ValueError):
        raise OSError(f"not HTTP: {head[:60]!r}") from None


if __name__ == "__main__":
    sys.exit(main())
