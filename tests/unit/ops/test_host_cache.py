"""The weight cache on the host: the real supervisor's server at its socket, and what `up` says without it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest

from support.engine_samples import make_status
from support.wishes import CPU, plan_of
from warmops import host_cache
from warmops.host_cache import HostCache, require
from warmops.project import Project, Remembered, write_remembered
from warmplan import UserError
from warmplan.placement import host_folder
from warmstack_supervisor.serving import StatusServer, UnixStatusServer
from warmstack_supervisor.status import Status

PLAN = plan_of(CPU + "weight_cache: {placement: host}\n")
HELD = make_status(identity=PLAN.identity.value)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HostCache:
    """The weight cache of the plan's project, below a folder of its own."""
    monkeypatch.setattr(host_cache, "HOST_STATE", str(tmp_path))
    (tmp_path / host_folder(PLAN.project)).mkdir()
    return HostCache(project=PLAN.project, port=1)


@contextmanager
def serving(server: StatusServer) -> Iterator[None]:
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def at_socket(cache: HostCache, status: Status) -> UnixStatusServer:
    return UnixStatusServer(str(cache.socket), lambda: status)


def refusal(cache: HostCache) -> str:
    with pytest.raises(UserError) as caught:
        require(PLAN, cache, Path("/state/weight-cache.service"))
    assert caught.value.exit_code == 1
    return str(caught.value)


def test_up_goes_on_when_the_right_weights_are_there(cache: HostCache) -> None:
    with serving(at_socket(cache, HELD)):
        require(PLAN, cache, Path("/x"))
        assert (cache.status() or {})["state"] == "held"


def test_up_says_how_the_unit_is_installed_and_started(cache: HostCache) -> None:
    said = refusal(cache)
    assert f"none answers at {cache.socket}" in said
    assert (
        "sudo install -m 644 /state/weight-cache.service "
        "/etc/systemd/system/warmstack-try-weight-cache.service && sudo systemctl daemon-reload && "
        "sudo systemctl enable --now warmstack-try-weight-cache.service"
    ) in said


def test_up_drops_no_other_weights(cache: HostCache) -> None:
    with serving(at_socket(cache, replace(HELD, identity="0" * 64))):
        said = refusal(cache)
    assert (
        f"holds Org/Name (identity {'0' * 16}), and this needs Org/Model (identity {PLAN.identity.short})"
        in said
    )
    assert "its restart drops what is held" in said
    assert "sudo systemctl restart warmstack-try-weight-cache.service" in said


def test_a_socket_that_nobody_serves_is_no_answer(cache: HostCache) -> None:
    server = at_socket(cache, HELD)
    server.server_close()
    assert cache.socket.exists()
    assert cache.status() is None
    with pytest.raises(UserError, match="none answers"):
        cache.process()


def test_who_may_not_open_the_socket_asks_the_port(cache: HostCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may open everything: the refusal is made here, the answer is real."""
    server = StatusServer(("127.0.0.1", 0), lambda: HELD)
    cache = replace(cache, port=server.server_address[1])

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(host_cache, "_open", refuse)
    with serving(server):
        assert (cache.status() or {})["identity"] == PLAN.identity.value
    assert cache.status() is None
    with pytest.raises(UserError, match="only root may look"):
        cache.process()


def test_the_process_behind_the_socket(cache: HostCache) -> None:
    with serving(at_socket(cache, HELD)):
        found = cache.process()
    assert (found.pid, found.user) == (os.getpid(), os.geteuid())
    assert found.command[-len(sys.argv) + 1 :] == tuple(sys.argv[1:])
    assert found.environment["PATH"]


def test_a_project_knows_where_its_weight_cache_is(cache: HostCache, tmp_path: Path) -> None:
    settings = Remembered(
        environment="x",
        overrides={},
        model="m",
        served_model="m",
        identity=PLAN.identity.value,
        platform="cpu",
        ranks=1,
        gateway_url="http://127.0.0.1:1",
        webui_url=None,
        needs_api_key=False,
    )
    project = Project(name=PLAN.project, state=tmp_path / "state")
    assert project.host_cache is None
    write_remembered(project.folder, settings)
    assert project.host_cache is None
    write_remembered(project.folder, replace(settings, host_cache_port=8900))
    assert project.host_cache == replace(cache, port=8900)
    with serving(at_socket(cache, HELD)):
        assert (project.supervisor_status() or {})["bytes_held"] == HELD.bytes_held
