"""A `vllm` command for the tests of the two PID-1 programs: real processes, real sockets, no model.

    vllm serve MODEL --port P        answers /health and /metrics as vLLM does
    vllm preload … --weight-cache-socket-dir D --weight-cache-health-port P
                                     answers /health, and get_memory on a socket in D, in vLLM's protocol

FAKE_VLLM (JSON) bends it: {"lines": […], "exit": 3} prints and ends; {"orphan": true} leaves a process that
outlives it; {"ignore_term": true}; {"running": 1} has a request that never makes a token; {"die_file": path}
ends with 0 once the file is there; {"bytes_file": path} holds as many bytes as the file says; {"import":
name} imports a module late, and says when it was there already; {"rank": true} shows one rank and ends.
"""

from __future__ import annotations

import importlib
import json
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

WISH: dict[str, Any] = json.loads(os.environ.get("FAKE_VLLM", "{}"))


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        metrics = f'vllm:num_requests_running{{engine="0"}} {WISH.get("running", 0)}\n'
        body = metrics.encode() if self.path == "/metrics" else b""
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


def option(name: str) -> str:
    return sys.argv[sys.argv.index(name) + 1]


def answer_get_memory(server: socket.socket) -> None:
    while True:
        connection, _ = server.accept()
        with connection:
            head = connection.recv(8)
            if len(head) < 8:
                continue
            assert pickle.loads(connection.recv(struct.unpack("!Q", head)[0])) == {"cmd": "get_memory"}
            held = int(Path(WISH["bytes_file"]).read_text()) if "bytes_file" in WISH else 1000
            answer = pickle.dumps({"status": "ok", "memory_bytes": held})
            connection.sendall(struct.pack("!Q", len(answer)) + answer)


def listen_as_rank() -> None:
    folder = Path(option("--weight-cache-socket-dir"))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "vllm_weight_cache_fake.sock"
    path.unlink(missing_ok=True)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(str(path))
    server.listen()
    threading.Thread(target=answer_get_memory, args=(server,), daemon=True).start()


def main() -> int:
    for line in WISH.get("lines", ()):
        print(line, flush=True)
    if "import" in WISH:
        if WISH["import"] in sys.modules:
            print(f"{WISH['import']} was there", flush=True)
        importlib.import_module(WISH["import"])
    if WISH.get("rank"):
        return int(importlib.import_module("vllm.entrypoints.cli.preload").show_rank())
    if WISH.get("orphan"):
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    if "exit" in WISH:
        return int(WISH["exit"])
    if WISH.get("ignore_term"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    preload = sys.argv[1] == "preload"
    if preload:
        listen_as_rank()
    port = int(option("--weight-cache-health-port" if preload else "--port"))
    threading.Thread(target=HTTPServer(("127.0.0.1", port), Handler).serve_forever, daemon=True).start()
    while not ("die_file" in WISH and Path(WISH["die_file"]).exists()):
        time.sleep(0.02)
    return 0


if __name__ == "__main__":
    sys.exit(main())
