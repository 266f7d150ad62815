"""What is served, what is refused, who may come in, and what the log keeps (case 40)."""

from __future__ import annotations

import json

import pytest

from fakes.engine import FakeEngine, chat_body
from fakes.gateway import Gateway, Lasting
from support.waiting import wait_until

CHAT = "/v1/chat/completions"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/health", 200),
        ("GET", "/ready", 200),
        ("GET", "/v1/models", 200),
        ("GET", "/v1", 404),
        ("GET", "/", 404),
        ("GET", "/metrics", 404),
        ("GET", "/health/metrics", 404),
        ("POST", "/sleep", 404),
        ("GET", "/v1/../metrics", 404),
        ("GET", "/v1/%2e%2e/metrics", 404),
        ("GET", "/v1%2f..%2fmetrics", 404),
        ("GET", "/v1/..%2fmetrics", 404),
        ("GET", "//v1/../metrics", 404),
        ("GET", "/config/", 404),
    ],
)
def test_paths(lasting: Lasting, method: str, path: str, status: int) -> None:
    answer = lasting.gateway().ask(method, path)
    assert answer.status == status
    if status == 404:
        assert answer.error["code"] == "not_found"
        assert lasting.first.received == []


@pytest.mark.parametrize(
    ("size_bytes", "announced", "status"),
    [
        (20_000_000, True, 200),
        (20_000_001, True, 413),
        (30_000_000, True, 413),
        (20_000_000, False, 200),
        (20_000_001, False, 413),
    ],
)
def test_sizes(lasting: Lasting, size_bytes: int, announced: bool, status: int) -> None:
    body = chat_body(size_bytes=size_bytes)
    answer = lasting.gateway().ask("POST", CHAT, body=body if announced else iter([body[:1000], body[1000:]]))
    assert answer.status == status
    if status == 413:
        assert answer.error["code"] == "request_too_large"
        assert lasting.first.chats() == []


def test_too_large_is_said_at_once_when_no_engine_lives(gateway: Gateway, engine: FakeEngine) -> None:
    engine.die()
    assert gateway.ask("POST", CHAT, body=chat_body(size_bytes=20_000_001)).status == 413


@pytest.mark.parametrize(
    ("setting", "secret", "authorization", "status"),
    [
        ("required", "s3cret", "Bearer s3cret", 200),
        ("required", "s3cret\n", "Bearer s3cret", 200),
        ("required", "s3cret\r\n", "Bearer s3cret", 200),
        ("required", "s{3}c$ret", "Bearer s{3}c$ret", 200),
        ("required", "s3cret", "Bearer wrong", 401),
        ("required", "s3cret", "Bearer s3cret2", 401),
        ("required", "s3cret", "s3cret", 401),
        ("required", "s3cret", "Bearer ", 401),
        ("required", "s3cret", None, 401),
        ("required", "", "Bearer ", 401),
        ("required", "\n", "Bearer ", 401),
        ("required", "", None, 401),
        ("required", None, "Bearer ", 401),
        ("required", None, None, 401),
        ("Required", "s3cret", None, 401),
        ("yes", "s3cret", "Bearer s3cret", 200),
        ("off", "s3cret", None, 200),
        ("", "s3cret", None, 200),
        (None, None, None, 200),
        (None, None, "Bearer whatever", 200),
    ],
)
def test_key(
    lasting: Lasting, setting: str | None, secret: str | None, authorization: str | None, status: int
) -> None:
    gateway = lasting.gateway(**({} if setting is None else {"WARMSTACK_API_KEY": setting}))
    key = gateway.folder / "api_key"  # read at each request
    key.unlink(missing_ok=True)
    if secret is not None:
        key.write_bytes(secret.encode())
    answer = gateway.ask(
        "GET", "/v1/models", headers={} if authorization is None else {"Authorization": authorization}
    )
    assert answer.status == status
    if status == 401:
        assert answer.error["code"] == "invalid_api_key"
        assert lasting.first.received == []
    else:
        assert "Authorization" not in lasting.first.received[0].headers
    assert [gateway.ask("GET", path).status for path in ("/health", "/ready")] == [200, 200]


def test_the_log_is_quiet_and_has_one_line_a_request(gateway: Gateway, engine: FakeEngine) -> None:
    gateway.ask("GET", "/v1/models", headers={"Authorization": "Bearer s3cret", "Cookie": "s3cret"})
    engine.die()
    for _ in range(20):
        gateway.ask("GET", "/health")
        gateway.ask("GET", "/ready")
    requests = [line for line in gateway.log_lines() if line.get("logger") == "http.log.access"]
    assert [(line["request"]["uri"], line["status"]) for line in requests] == [("/v1/models", 200)]
    assert "s3cret" not in json.dumps(gateway.log_lines())
    assert len(gateway.log_lines()) < 20


def test_ready_follows_the_engine_and_never_waits(gateway: Gateway, engine: FakeEngine) -> None:
    engine.behave(loading=True)
    answer = gateway.ask("GET", "/ready")
    assert (answer.status, answer.error["code"], answer.headers["Retry-After"]) == (
        503,
        "engine_not_ready",
        "5",
    )
    engine.die()
    answer = gateway.ask("GET", "/ready")
    assert (answer.status, answer.error["code"]) == (503, "engine_not_ready")
    engine.behave(loading=False)
    engine.start()
    wait_until(
        lambda: gateway.ask("GET", "/ready").status == 200, seconds=3, what="/ready follows the engine"
    )
