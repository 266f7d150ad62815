"""Stands in for Docker's bridge on a host that has none: leads ports from one network namespace to another.

    python3 relay.py --route FROM,ADDRESS,PORT,TO,INSIDE …

In: routes; FROM and TO are process ids whose namespaces are meant, 0 is this host's. It listens on
ADDRESS:PORT in FROM for as long as something listens on INSIDE in TO, so that a port behind which nobody is
refuses, as it does in Docker's network; and passes bytes both ways. A route ends with its namespaces. Needs
root: a thread enters a namespace to open a socket there.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import socket
import struct
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_CLONE_NEWNET = 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)
_LOOK_SECONDS = 0.05
_LISTENS = "0A"  # TCP_LISTEN in /proc/net/tcp
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closed with a reset, as a port where nobody listens


@dataclass(frozen=True, kw_only=True)
class Route:
    """`source` and `target` are process ids; 0 is this host."""

    source: int
    address: str
    port: int
    target: int
    inside: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--route", type=read_route, action="append", required=True)
    threads = [threading.Thread(target=lead, args=(Ends(route),)) for route in parser.parse_args().route]
    for thread in threads:
        thread.start()


def read_route(text: str) -> Route:
    source, address, port, target, inside = text.split(",")
    return Route(source=int(source), address=address, port=int(port), target=int(target), inside=int(inside))


class Ends:
    """Both namespaces of a route, held open."""

    def __init__(self, route: Route) -> None:
        self.route = route
        self._own = os.open("/proc/self/ns/net", os.O_RDONLY)
        self._held = {
            pid: os.open(_namespace(pid), os.O_RDONLY) for pid in {route.source, route.target} if pid
        }

    def living(self) -> bool:
        """Whether the processes that lend the namespaces are still there."""
        return all(Path(f"/proc/{pid}").exists() for pid in self._held)

    def answered(self) -> bool:
        """Whether somebody listens at the far end."""
        folder = Path(f"/proc/{self.route.target or 'self'}/net")
        return any(listens(_lines(folder / name), self.route.inside) for name in ("tcp", "tcp6"))

    def listen(self) -> socket.socket | None:
        """None while another relay, which ends with its own namespaces, still has the port."""
        with self._in(self.route.source), contextlib.suppress(OSError):
            return socket.create_server((self.route.address, self.route.port), backlog=64)
        return None

    def connect(self) -> socket.socket:
        with self._in(self.route.target):
            return socket.create_connection(("127.0.0.1", self.route.inside), timeout=5)

    @contextlib.contextmanager
    def _in(self, pid: int) -> Iterator[None]:
        """A socket keeps the namespace it was made in; the thread goes back to its own."""
        _enter(self._held.get(pid, self._own))
        try:
            yield
        finally:
            _enter(self._own)


def lead(ends: Ends) -> None:
    """Until a namespace is gone."""
    while ends.living():
        if not ends.answered() or (listener := ends.listen()) is None:
            time.sleep(_LOOK_SECONDS)
            continue
        with listener:
            listener.settimeout(_LOOK_SECONDS)
            while ends.living() and ends.answered():
                with contextlib.suppress(TimeoutError):
                    client, _ = listener.accept()
                    threading.Thread(target=serve, args=(client, ends), daemon=True).start()


def serve(client: socket.socket, ends: Ends) -> None:
    try:
        server = ends.connect()
    except OSError:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        client.close()
        return
    for one in (client, server):
        one.settimeout(None)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    back = threading.Thread(target=pump, args=(server, client), daemon=True)
    back.start()
    pump(client, server)
    back.join()
    client.close()
    server.close()


def pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
    except OSError:
        pass
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def listens(lines: Iterable[str], port: int) -> bool:
    """Whether a table like /proc/net/tcp has a socket that listens on this port, at whatever address."""
    rows = (line.split() for line in lines)
    return any(
        len(row) > 3 and row[3] == _LISTENS and row[1].rpartition(":")[2] == f"{port:04X}" for row in rows
    )


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:  # gone, or a kernel without IPv6
        return []


def _namespace(pid: int) -> str:
    return f"/proc/{pid}/ns/net"


def _enter(namespace: int) -> None:
    if _LIBC.setns(namespace, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


if __name__ == "__main__":
    main()
