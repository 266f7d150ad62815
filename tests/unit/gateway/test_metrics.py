"""The relay counts what it does, and serves that on one address of its own."""

from __future__ import annotations

import urllib.error
import urllib.request

import pytest

from fakes.engine import FakeEngine, chat_body
from fakes.gateway import StartGateway
from support.waiting import free_port, wait_until

CHAT = "/v1/chat/completions"


def scraped(url: str) -> dict[str, str]:
    with urllib.request.urlopen(url, timeout=5) as answer:
        assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
        lines = answer.read().decode().splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def test_what_happens_is_counted(start_gateway: StartGateway, engine: FakeEngine) -> None:
    port = free_port()
    gateway = start_gateway(WARMSTACK_HOLD="100ms", WARMSTACK_METRICS=f"127.0.0.1:{port}")
    wait_until(lambda: gateway.ask("GET", "/ready").status == 200, seconds=5, what="the engine is ready")
    gateway.ask("GET", "/v1/models")
    engine.behave(die_after_tokens=2)
    gateway.ask("POST", CHAT, body=chat_body(stream=True))
    gateway.ask("POST", CHAT, body=chat_body())
    values = scraped(f"http://127.0.0.1:{port}/metrics")
    assert {
        'warmstack_gateway_requests_total{outcome="answered"}': "1",
        'warmstack_gateway_requests_total{outcome="cut"}': "1",
        'warmstack_gateway_requests_total{outcome="refused"}': "1",
        "warmstack_gateway_cut_total": "1",
        "warmstack_gateway_hold_seconds_count": "1",
        "warmstack_gateway_waiting": "0",
        'warmstack_gateway_in_flight{engine="127.0.0.1"}': "0",
        'warmstack_gateway_engine_ready{engine="127.0.0.1"}': "0",
    }.items() <= values.items()
    with pytest.raises(urllib.error.HTTPError, match="404"):
        scraped(f"http://127.0.0.1:{port}/v1/models")


def test_an_address_that_is_not_here_costs_the_metrics_alone(start_gateway: StartGateway) -> None:
    gateway = start_gateway(WARMSTACK_METRICS="no-such-name.invalid:9180")
    assert gateway.ask("GET", "/v1/models").status == 200
    (mark,) = gateway.marks("no-metrics")
    assert mark["address"] == "no-such-name.invalid:9180"
