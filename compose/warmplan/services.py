"""The shapes of a plan's parts, as templates show them. Data only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A volume (`kind` volume, `source` its name) or a host folder (`kind` bind, `source` absolute)."""

    kind: str
    source: str
    target: str
    read_only: bool


@dataclass(frozen=True, kw_only=True)
class Port:
    """A published port."""

    host: str
    published: int
    target: int

    @property
    def text(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.published}:{self.target}"


@dataclass(frozen=True, kw_only=True)
class Health:
    """A health check; times in seconds."""

    command: tuple[str, ...]
    interval: int
    timeout: int
    retries: int
    start_period: int


@dataclass(frozen=True, kw_only=True)
class Gpus:
    """GPUs of a container: the UUIDs, or the first `count` when there are none."""

    count: int
    devices: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Service:
    """One container. `shm_bytes` and `ipc` are None where Docker's defaults serve.

    With `profiles` Compose starts it only when it is asked for by name.
    """

    name: str
    image: str
    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    labels: tuple[tuple[str, str], ...]
    mounts: tuple[Mount, ...]
    networks: tuple[str, ...]
    health: Health
    stop_seconds: int
    ports: tuple[Port, ...] = ()
    secrets: tuple[str, ...] = ()
    gpus: Gpus | None = None
    shm_bytes: int | None = None
    ipc: str | None = None
    profiles: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Volume:
    """A named volume; an external one is made by `up` and shared by all projects of the host."""

    name: str
    external: bool
