"""The Caddyfile as Caddy reads it."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from fakes.gateway import CADDYFILE, caddy_binary


def adapted() -> dict[str, Any]:
    """The Caddyfile as JSON, with no variable set."""
    command = [caddy_binary(), "adapt", "--config", str(CADDYFILE), "--adapter", "caddyfile"]
    return dict(
        json.loads(subprocess.run(command, env={}, capture_output=True, check=True, timeout=20).stdout)
    )


def test_it_stands_as_caddy_fmt_writes_it() -> None:
    done = subprocess.run([caddy_binary(), "fmt", str(CADDYFILE)], capture_output=True, text=True, timeout=20)
    assert done.stdout == CADDYFILE.read_text()


def test_without_variables_it_listens_on_8080_and_goes_to_the_relay_alone() -> None:
    config = adapted()
    assert config["admin"]["disabled"] is True
    (server,) = config["apps"]["http"]["servers"].values()
    assert server["listen"] == ["[::]:8080"]
    assert "write_timeout" not in server
    assert "read_timeout" not in server
    text = json.dumps(server)
    assert text.count('"upstreams": [{"dial": "unix//tmp/relay.sock"}]') == text.count('"dial"') == 2
    assert set(server["protocols"]) == {"h1", "h2", "h2c"}
    assert "{file./run/secrets/api_key}" in text
