"""Lets this host reach one port inside a container that has no network but its own loopback.

In: the process id of the container, a port inside, a port of 127.0.0.1 here. It listens as soon as something
answers inside, and passes bytes both ways. Stands in for the published ports of a host whose Docker has no
bridge. Needs root: a thread enters the network namespace to open its socket there.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import socket
import threading
import time

_CLONE_NEWNET = 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pid", type=int, required=True)
    parser.add_argument("--inside", type=int, default=8080)
    parser.add_argument("--port", type=int, required=True)
    arguments = parser.parse_args()
    relay(f"/proc/{arguments.pid}/ns/net", arguments.inside, arguments.port)


def relay(namespace: str, inside: int, port: int) -> None:
    """Runs until the namespace is gone."""
    own = os.open("/proc/self/ns/net", os.O_RDONLY)
    other = os.open(namespace, os.O_RDONLY)
    # Before `up` has started the gateway nobody may hold this port: `up` would find it in use.
    while True:
        try:
            connect_inside(own, other, inside).close()
            break
        except OSError:
            time.sleep(0.2)
    listener = socket.create_server(("127.0.0.1", port), backlog=64)
    while True:
        client, _ = listener.accept()
        threading.Thread(target=serve, args=(client, own, other, inside), daemon=True).start()


def serve(client: socket.socket, own: int, other: int, inside: int) -> None:
    try:
        server = connect_inside(own, other, inside)
    except OSError:
        client.close()
        return
    for one in (client, server):
        one.settimeout(None)
    back = threading.Thread(target=pump, args=(server, client), daemon=True)
    back.start()
    pump(client, server)
    back.join()
    client.close()
    server.close()


def connect_inside(own: int, other: int, port: int) -> socket.socket:
    """A socket keeps the namespace it was made in; the thread goes back to its own."""
    enter(other)
    try:
        return socket.create_connection(("127.0.0.1", port), timeout=5)
    finally:
        enter(own)


def enter(namespace: int) -> None:
    if _LIBC.setns(namespace, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
    except OSError:
        pass
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    main()
