"""`warm verify`: each kind of difference, from facts; and the facts from what Compose and Docker print."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from warmops.differences import (
    CacheProcess,
    Difference,
    LastStart,
    MountFact,
    PlannedService,
    RunningService,
    StackFacts,
    difference_rows,
    find_differences,
)
from warmops.verify import planned_services, running_service

SOCKETS = MountFact(target="/run/warmstack", kind="volume", source="p_sockets", read_only=False)
HUB = MountFact(target="/hub", kind="volume", source="warmstack-hub", read_only=True)
PLANNED_CACHE = PlannedService(
    name="weight-cache",
    hashes=("h1",),
    image="warmstack/weight-cache:1",
    image_id="sha256:i1",
    user="10001:10001",
    ipc="shareable",
    mounts=frozenset({HUB, SOCKETS}),
    identity="id",
)
PLANNED_ENGINE = replace(
    PLANNED_CACHE, name="vllm", hashes=("h2", "h2-joined"), image_id="sha256:i2", ipc="service:weight-cache"
)
CACHE = RunningService(
    name="weight-cache",
    id="wc",
    state="running",
    config_hash="h1",
    image_id="sha256:i1",
    user="10001:10001",
    ipc="shareable",
    pid="",
    mounts=frozenset({HUB, SOCKETS}),
    identity="id",
    started_at=1.0,
)
ENGINE = replace(
    CACHE,
    name="vllm",
    id="en",
    config_hash="h2-joined",
    image_id="sha256:i2",
    ipc="container:wc",
    started_at=2.0,
)
HIT = LastStart(service="vllm", outcome="hit", reason=None)
PROCESS = CacheProcess(user=10001, command=("python", "--dtype=bfloat16"))
STATUS: dict[str, Any] = {"state": "held", "identity": "id", "bytes_held": 1000}
GOOD = StackFacts(
    planned=(PLANNED_CACHE, PLANNED_ENGINE),
    running=(CACHE, ENGINE),
    supervisor=STATUS,
    weight_bytes=1000,
    starts=(HIT,),
)


def with_engine(**changes: Any) -> StackFacts:
    return replace(GOOD, running=(CACHE, replace(ENGINE, **changes)))


def with_status(**changes: Any) -> StackFacts:
    return replace(GOOD, supervisor={**STATUS, **changes})


def with_start(**changes: Any) -> StackFacts:
    return replace(GOOD, starts=(replace(HIT, **changes),))


def with_process(**changes: Any) -> StackFacts:
    return replace(GOOD, processes=(PROCESS, replace(PROCESS, **changes)))


def planned_engine(**changes: Any) -> StackFacts:
    return replace(GOOD, planned=(PLANNED_CACHE, replace(PLANNED_ENGINE, **changes)))


@pytest.mark.parametrize(
    "facts",
    [
        GOOD,
        with_engine(config_hash="h2"),
        with_status(bytes_held=999),
        replace(GOOD, weight_bytes=None),
        replace(GOOD, processes=(PROCESS, PROCESS)),
        replace(GOOD, running=(ENGINE, CACHE)),
    ],
)
def test_all_as_planned(facts: StackFacts) -> None:
    assert find_differences(facts) == ()


@pytest.mark.parametrize(
    ("facts", "name", "current", "desired"),
    [
        (with_engine(state="exited"), "vllm: state", "exited", "running"),
        (with_engine(config_hash="h3"), "vllm: configuration", "h3", "h2"),
        (with_engine(image_id="sha256:i3"), "vllm: image", "sha256:i3", "sha256:i2"),
        (
            planned_engine(image="i:9", image_id=None),
            "vllm: image",
            "sha256:i2",
            "i:9, which is not on this host",
        ),
        (with_engine(user=""), "vllm: user", "root", "10001:10001"),
        (with_engine(identity=None), "vllm: identity", "none", "id"),
        (with_engine(pid="host"), "vllm: PID namespace", "host", "private"),
        (with_engine(ipc="container:old"), "vllm: IPC namespace", "container:old", "container:wc"),
        (
            with_engine(started_at=0.5),
            "vllm: IPC namespace",
            "of an earlier start of the weight-cache",
            "of its present start",
        ),
        (
            replace(GOOD, running=(replace(CACHE, ipc="private"), ENGINE)),
            "weight-cache: IPC namespace",
            "private",
            "shareable",
        ),
        (
            with_engine(mounts=frozenset({HUB})),
            "vllm: mount /run/warmstack",
            "not there",
            "volume p_sockets (read-write)",
        ),
        (
            with_engine(mounts=frozenset({replace(HUB, read_only=False), SOCKETS})),
            "vllm: mount /hub",
            "volume warmstack-hub (read-write)",
            "volume warmstack-hub (read-only)",
        ),
        (replace(GOOD, running=(CACHE, ENGINE, replace(CACHE, name="old"))), "old", "running", "not there"),
        (replace(GOOD, supervisor=None), "weight-cache: status", "no answer", "held"),
        (with_status(state="loading"), "weight-cache: status: state", "loading", "held"),
        (with_status(identity="other"), "weight-cache: status: identity", "other", "id"),
        (with_process(user=0), "weight-cache: user", "0", "10001"),
        (
            with_process(command=("python", "--dtype=auto", "--x")),
            "weight-cache: command",
            "--dtype=auto --x",
            "--dtype=bfloat16",
        ),
        (with_status(bytes_held=980), "weight-cache: bytes held", "980", "1000 or more"),
        (with_start(outcome="miss", reason="mismatch"), "vllm: last start", "miss: mismatch", "hit"),
        (with_start(outcome="unknown"), "vllm: last start", "unknown", "hit"),
    ],
)
def test_one_difference_is_named(facts: StackFacts, name: str, current: str, desired: str) -> None:
    assert find_differences(facts) == (Difference(name=name, current=current, desired=desired),)


def test_a_stack_that_is_not_there() -> None:
    facts = replace(GOOD, running=(), supervisor=None, starts=(replace(HIT, outcome="unknown"),))
    assert [difference.name for difference in find_differences(facts)] == [
        "weight-cache",
        "vllm",
        "weight-cache: status",
        "vllm: last start",
    ]


def test_a_standby_is_compared_like_the_engine_and_a_leftover_of_a_roll_is_named() -> None:
    surge = replace(ENGINE, name="vllm-surge", id="su")
    standby = replace(
        GOOD,
        planned=(*GOOD.planned, replace(PLANNED_ENGINE, name="vllm-surge")),
        starts=(HIT, replace(HIT, service="vllm-surge")),
    )
    assert find_differences(replace(standby, running=(CACHE, ENGINE, surge))) == ()
    assert [found.name for found in find_differences(standby)] == ["vllm-surge"]
    assert find_differences(replace(GOOD, running=(CACHE, ENGINE, surge))) == (
        Difference(name="vllm-surge", current="running", desired="not there"),
    )


def test_hashes_are_cut_in_the_table_alone() -> None:
    one, other = "ab" * 32, "sha256:" + "cd" * 32
    (row,) = difference_rows([Difference(name="n", current=one, desired=other)])
    assert row == ("n", "ab" * 8, "sha256:" + "cd" * 8)
    assert difference_rows([Difference(name="n", current="plain", desired="x")]) == [("n", "plain", "x")]


# As `docker compose config --format json` of Compose 5.6.1 and `docker inspect` of Engine 20.10 print them.
CONFIG: dict[str, Any] = {
    "services": {
        "open-webui": {
            "image": "warmstack/open-webui:1",
            "user": "10001:10001",
            "volumes": [{"type": "volume", "source": "open-webui", "target": "/data"}],
            "secrets": [{"source": "webui_secret_key", "target": "/run/secrets/webui_secret_key"}],
        }
    },
    "volumes": {"open-webui": {"name": "p_open-webui"}},
    "secrets": {
        "webui_secret_key": {"name": "p_webui_secret_key", "file": "/state/secrets/webui_secret_key"}
    },
}
INSPECTED: dict[str, Any] = {
    "Id": "c1",
    "Image": "sha256:i1",
    "State": {
        "Status": "running",
        "StartedAt": "2026-11-29T17:00:00.5Z",
        "FinishedAt": "0001-01-01T00:00:00Z",
    },
    "Config": {
        "User": "10001:10001",
        "Labels": {"com.docker.compose.service": "open-webui", "com.docker.compose.config-hash": "h"},
    },
    "HostConfig": {"IpcMode": "private", "PidMode": ""},
    "Mounts": [
        {"Type": "volume", "Name": "p_open-webui", "Source": "/v/_data", "Destination": "/data", "RW": True},
        {
            "Type": "bind",
            "Source": "/state/secrets/webui_secret_key",
            "Destination": "/run/secrets/webui_secret_key",
            "RW": False,
        },
    ],
}


def test_what_compose_and_docker_print_compares_equal() -> None:
    (planned,) = planned_services(CONFIG, {"open-webui": ("h",)}, {"warmstack/open-webui:1": "sha256:i1"})
    facts = replace(GOOD, planned=(planned,), running=(running_service(INSPECTED),), supervisor=None)
    assert [difference.name for difference in find_differences(facts)] == ["weight-cache: status"]
