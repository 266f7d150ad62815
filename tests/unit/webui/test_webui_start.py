"""The start of Open WebUI: secrets in, environment out; and its health check."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.engine import FakeEngine
from support.waiting import free_port

SCRIPT = Path(__file__).parents[3] / "webui-image" / "bin" / "warmstack-webui"
SECRETS = {"webui_secret_key": "k" * 64 + "\n", "webui_admin_password": "p4ss word\n", "api_key": "key-1\n"}
STAND_IN = f"#!{sys.executable}\nimport json, os, sys\nprint(json.dumps([sys.argv[1:], dict(os.environ)]))\n"


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The script as the container runs it, with a stand-in for `open-webui` that prints what it was given."""
    stand_in = folder / "open-webui"
    stand_in.write_text(STAND_IN)
    stand_in.chmod(0o755)
    return subprocess.run(
        [sys.executable, "-ISE", str(SCRIPT), *arguments],
        env={
            "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
            "WARMSTACK_SECRETS": str(folder),
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=20,
    )


def write_secrets(folder: Path, secrets: dict[str, str]) -> None:
    for name, content in secrets.items():
        (folder / name).write_text(content)


def test_open_webui_gets_the_secrets_the_paths_and_the_settings(tmp_path: Path) -> None:
    write_secrets(tmp_path, SECRETS)
    done = run(tmp_path, ENABLE_SIGNUP="false", HOME="/", OPENAI_API_KEY="overridden")
    arguments, environment = json.loads(done.stdout)
    assert arguments == ["serve", "--host", "0.0.0.0", "--port", "8080"]
    assert {
        "WEBUI_SECRET_KEY": "k" * 64,
        "WEBUI_ADMIN_PASSWORD": "p4ss word",
        "OPENAI_API_KEY": "key-1",
        "ENABLE_SIGNUP": "false",
        "DATA_DIR": "/data",
        "HOME": "/tmp",
        "STATIC_DIR": "/tmp/open-webui/static",
        "USE_SLIM_DOCKER": "true",
    }.items() <= environment.items()


@pytest.mark.parametrize("api_key", [None, "", "\n"])
def test_without_an_api_key_the_key_is_not_empty(tmp_path: Path, api_key: str | None) -> None:
    write_secrets(tmp_path, {**SECRETS, "api_key": api_key or ""})
    if api_key is None:
        (tmp_path / "api_key").unlink()
    _, environment = json.loads(run(tmp_path).stdout)
    assert environment["OPENAI_API_KEY"] == "no-key"


@pytest.mark.parametrize("name", ["webui_secret_key", "webui_admin_password"])
@pytest.mark.parametrize("content", [None, "", " \n"])
def test_a_missing_secret_is_never_made_up(tmp_path: Path, name: str, content: str | None) -> None:
    write_secrets(tmp_path, {**SECRETS, name: content or ""})
    if content is None:
        (tmp_path / name).unlink()
    done = run(tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        f"error: the secret {name} is missing or empty in {tmp_path}",
        "hint: `make up` writes it: run that again",
    ]


def test_an_unknown_command_is_refused(tmp_path: Path) -> None:
    done = run(tmp_path, "prob")
    assert done.returncode == 2
    assert done.stderr.startswith("error: unknown command 'prob'\nhint: ")


def test_probe(tmp_path: Path) -> None:
    with FakeEngine() as other_server:
        done = run(tmp_path, "probe", WARMSTACK_PORT=str(other_server.port))
    assert (done.returncode, "404" in done.stderr) == (1, True)
    port = free_port()
    done = run(tmp_path, "probe", WARMSTACK_PORT=str(port))
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: Open WebUI does not answer on port {port}: ")
