"""An OpenAI-shaped engine that loads, answers, is slow and dies as a test asks.

In: a `Behaviour`, changed at any time; `start` and `die`, as often as wanted, on one port.
Out: `/health`, `/metrics`, `/v1/models`, `/v1/chat/completions` (whole or streamed), and what was received.
It knows no model: the answer is the list of tokens it was given. As a program it serves until it is stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

MODEL = "fake/model"


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """What the engine does from now on."""

    tokens: tuple[str, ...] = ("The", " capital", " of", " France", " is", " Paris", ".")
    token_seconds: float = 0.0
    """Pause before each token, the first one included."""
    loading: bool = False
    """`/health` answers 503, as an engine does whose core is gone."""
    die_after_tokens: int | None = None
    """The whole engine dies once a request got so many tokens; 0 is before the response headers."""
    error_after_tokens: int | None = None
    """The stream carries an error event after so many tokens and ends, as vLLM's does when its core dies."""
    end_after_tokens: int | None = None
    """The answer ends after so many tokens, in good order and without its end; 0 is half a whole answer."""
    refuse: tuple[int, str, str] | None = None
    """Status, code and sentence that every chat gets instead of an answer."""


@dataclass(frozen=True, kw_only=True)
class Received:
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(kw_only=True)
class FakeEngine:
    """A context manager: entering starts the engine, leaving ends it."""

    behaviour: Behaviour = field(default_factory=Behaviour)
    host: str = "127.0.0.1"
    port: int = 0
    received: list[Received] = field(default_factory=list)
    cancelled: int = 0
    """Requests whose client went away before the end."""
    mid_stream: int = 0
    """Streams that have got two tokens and not their end."""
    _server: _Server | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> FakeEngine:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.die()

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def alive(self) -> bool:
        return self._server is not None

    def start(self) -> None:
        """Listen; after `die` on the same port as before."""
        self._server = _Server(self)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def die(self) -> None:
        """As SIGKILL does it: the port is closed and every connection is cut."""
        with self._lock:
            if self._server is not None:
                self._server.shutdown()
                self._server.server_close()
                self._server.cut_connections()
                self._server = None

    def behave(self, **changes: Any) -> None:
        self.behaviour = replace(self.behaviour, **changes)

    def chats(self) -> list[Received]:
        return [request for request in self.received if request.path == "/v1/chat/completions"]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 512

    def __init__(self, engine: FakeEngine) -> None:
        super().__init__((engine.host, engine.port), _Handler)
        self.engine = engine
        self.connections: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A cut connection is what tests ask for; it prints nothing."""

    def cut_connections(self) -> None:
        for connection in list(self.connections):
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Tests read `received`."""

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def do_GET(self) -> None:
        engine = self._receive()
        if self.path == "/health":
            self._send(503 if engine.behaviour.loading else 200, "text/plain", b"")
        elif self.path == "/metrics":
            self._send(
                200,
                "text/plain",
                f'vllm:request_success_total{{model_name="{MODEL}"}} {len(engine.chats())}\n'.encode(),
            )
        elif self.path == "/v1/models":
            model = {"id": MODEL, "object": "model", "created": 0, "owned_by": "fake"}
            self._send_json(200, {"object": "list", "data": [model]})
        else:
            self._send_json(404, {"error": {"message": "Not Found", "type": "NotFoundError", "code": 404}})

    def do_POST(self) -> None:
        engine = self._receive()
        if self.path != "/v1/chat/completions":
            self._send_json(404, {"error": {"message": "Not Found", "type": "NotFoundError", "code": 404}})
            return
        request = engine.received[-1].json
        if request.get("tools"):
            message = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
            self._send_json(400, {"error": {"message": message, "type": "BadRequestError", "code": 400}})
            return
        if engine.behaviour.refuse is not None:
            status, code, message = engine.behaviour.refuse
            self._send_json(status, {"error": {"message": message, "type": "error", "code": code}})
            return
        try:
            if request.get("stream"):
                self._stream(engine)
            else:
                body = json.dumps(_completion("".join(self._tokens(engine)))).encode()
                half = engine.behaviour.end_after_tokens is not None
                self._send(200, "application/json", body[: len(body) // 2] if half else body)
        except (BrokenPipeError, ConnectionResetError):
            engine.cancelled += 1
            self.close_connection = True

    def _receive(self) -> FakeEngine:
        body = self._body()
        received = Received(
            method=self.command, path=self.path, headers=dict(self.headers.items()), body=body
        )
        if self.path not in ("/health", "/metrics"):
            self.server.engine.received.append(received)
        return self.server.engine

    def _body(self) -> bytes:
        """The whole body; one that was cut off ends the connection."""
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while size := int(self.rfile.readline() or b"cut off", 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _tokens(self, engine: FakeEngine) -> Iterator[str]:
        """The tokens at their pace; the engine dies in between when the behaviour says so."""
        for count in range(len(engine.behaviour.tokens) + 1):
            if count == engine.behaviour.die_after_tokens:
                engine.die()
                raise ConnectionResetError
            if count < len(engine.behaviour.tokens):
                time.sleep(engine.behaviour.token_seconds)
                yield engine.behaviour.tokens[count]

    def _stream(self, engine: FakeEngine) -> None:
        self._begun = False
        try:
            self._stream_tokens(engine)
        finally:
            engine.mid_stream -= self._begun

    def _stream_tokens(self, engine: FakeEngine) -> None:
        tokens = self._tokens(engine)
        first = next(tokens, None)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        count = 0
        while first is not None:
            if count == engine.behaviour.end_after_tokens:
                self._write_chunk(b"")
                return
            if count == engine.behaviour.error_after_tokens:
                self._event(
                    {
                        "error": {
                            "message": "EngineCore encountered an issue.",
                            "type": "InternalServerError",
                            "code": 500,
                        }
                    }
                )
                break
            delta = {"role": "assistant", "content": first} if count == 0 else {"content": first}
            self._event(_chunk(delta, None, token_id=count))
            if count == 1:
                self._begun = True
                engine.mid_stream += 1
            first = next(tokens, None)
            count += 1
        else:
            self._event(_chunk({}, "stop"))
        self._write_chunk(b"data: [DONE]\n\n")
        self._write_chunk(b"")

    def _event(self, event: dict[str, Any]) -> None:
        self._write_chunk(b"data: " + json.dumps(event).encode() + b"\n\n")

    def _write_chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _send_json(self, status: int, value: Any) -> None:
        self._send(status, "application/json", json.dumps(value).encode())

    def _send(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def chat_body(*, stream: bool = False, size_bytes: int = 0) -> bytes:
    """A chat request, padded with blanks to `size_bytes`."""
    request = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], "stream": stream}
    return json.dumps(request).encode().ljust(size_bytes)


def _completion(text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": MODEL,
        "choices": [choice],
    }


def _chunk(delta: dict[str, str], finish_reason: str | None, token_id: int | None = None) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    if token_id is not None:  # vLLM adds it when the request has `return_token_ids`
        choice["token_ids"] = [token_id]
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": MODEL,
        "choices": [choice],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="An OpenAI-shaped engine for tests.")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--token-seconds", type=float, default=0.05)
    arguments = parser.parse_args()
    with FakeEngine(port=arguments.port, behaviour=Behaviour(token_seconds=arguments.token_seconds)):
        threading.Event().wait()


if __name__ == "__main__":
    main()
