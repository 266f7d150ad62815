"""Which headers go from one side to the other.

In: headers as they came. Out: those that are about the message and not about one connection (RFC 9110).
Refuses to know what they mean.
"""

from collections.abc import Iterable, Mapping

_HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
# The length is set anew by whoever writes the body; Caddy has already answered an Expect.
_NOT_SENT = _HOP_BY_HOP | {"content-length", "expect"}


def for_engine(headers: Mapping[str, str], pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Of a request. `pairs` are all its headers in order, repeated ones too."""
    left_out = _NOT_SENT | _named(headers)
    return [(name, _writable(value)) for name, value in pairs if name.lower() not in left_out]


def for_client(headers: Mapping[str, str], pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Of an answer; its length stays."""
    left_out = _HOP_BY_HOP | _named(headers)
    return [(name, _writable(value)) for name, value in pairs if name.lower() not in left_out]


def _writable(value: str) -> str:
    """aiohttp reads bytes that are no UTF-8 as surrogates, and cannot write those."""
    return value if value.isascii() else value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _named(headers: Mapping[str, str]) -> set[str]:
    """Names that the message itself declares to be about the connection."""
    value = headers.get("Connection", "")
    return {name.strip().lower() for name in value.split(",")} if value else set()
