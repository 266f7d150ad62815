"""What the Compose file says to the gateway.

In: the environment. Out: `Settings`, or `WrongSetting` naming what is wrong. Nobody else in this package
reads the environment; Caddy reads WARMSTACK_API_KEY, _PORT, _BIND and _SECRETS by itself.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MOST_BODY_BYTES = 20_000_000  # of one request; the Caddyfile says the same where a size is announced
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")


class WrongSetting(Exception):
    """A variable that cannot be read; the text is one line for a person."""


@dataclass(frozen=True, kw_only=True)
class Upstream:
    """An engine by the name that people and `warmstack-gateway-route` call it."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, kw_only=True)
class Settings:
    upstreams: tuple[Upstream, ...]  # in order of preference
    hold_seconds: float
    most_waiting: int  # requests that wait for an engine at the same time
    most_held_bytes: int  # of request bodies in memory, all together
    metrics: tuple[str, int] | None  # where /metrics is served
    sockets: Path  # folder of relay.sock and control.sock
    data: Path  # folder that outlives the container
    caddyfile: Path


def read_settings(environment: Mapping[str, str]) -> Settings:
    metrics = environment.get("WARMSTACK_METRICS", "")
    return Settings(
        upstreams=read_upstreams(environment.get("WARMSTACK_UPSTREAMS", "vllm:8000 vllm-surge:8000")),
        hold_seconds=read_duration("WARMSTACK_HOLD", environment.get("WARMSTACK_HOLD", "120s")),
        most_waiting=_count(environment, "WARMSTACK_MOST_WAITING", 1000),
        most_held_bytes=_count(environment, "WARMSTACK_MOST_HELD_BYTES", 1_000_000_000),
        metrics=_address("WARMSTACK_METRICS", metrics) if metrics else None,
        sockets=Path(environment.get("TMPDIR", "/tmp")),
        data=Path(environment.get("WARMSTACK_DATA", "/data")),
        caddyfile=Path(environment.get("WARMSTACK_CADDYFILE", "/etc/caddy/Caddyfile")),
    )


def read_upstreams(text: str) -> tuple[Upstream, ...]:
    """`vllm:8000 vllm-surge:8000`. The host is the name, and the whole address where hosts are equal."""
    words = text.split()
    if not words:
        raise WrongSetting("WARMSTACK_UPSTREAMS: names no engine")
    twice = [word for word, count in Counter(words).items() if count > 1]
    if twice:
        raise WrongSetting(f"WARMSTACK_UPSTREAMS: names {twice[0]} twice")
    addresses = [_address("WARMSTACK_UPSTREAMS", word) for word in words]
    hosts = Counter(host for host, _ in addresses)
    return tuple(
        Upstream(name=host if hosts[host] == 1 else word, host=host, port=port)
        for word, (host, port) in zip(words, addresses, strict=True)
    )


def read_duration(variable: str, text: str) -> float:
    """Seconds of `120s`, `300ms`, `1m30s` or `0`."""
    parts = _PART.findall(text)
    if text != "0" and (not parts or "".join(number + unit for number, unit in parts) != text):
        raise WrongSetting(f"{variable}: {text!r} is no time such as 120s or 2m")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def _address(variable: str, text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise WrongSetting(f"{variable}: {text!r} is no address such as vllm:8000")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _count(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, str(default))
    if not text.isdecimal():
        raise WrongSetting(f"{name}: {text!r} is no whole number")
    return int(text)
