"""`decide` as a table: what is wanted, what is there, what `up` does about it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from warmops.changes import Container, DesiredService, decide

WANT = (
    DesiredService(name="vllm", config_hash="v1", image_id="sha256:i", model="A"),
    DesiredService(name="weight-cache", config_hash="w1", image_id="sha256:i", model="A"),
    DesiredService(name="gateway", config_hash="g1", image_id="sha256:g"),
)
CACHE = Container(
    service="weight-cache", id="wc", state="running", config_hash="w1", image_id="sha256:i", started_at=1.0,
    model="A",
)  # fmt: skip
ENGINE = Container(
    service="vllm", id="en", state="running", config_hash="v1", image_id="sha256:i", started_at=2.0,
    joined_ipc="wc", model="A",
)  # fmt: skip
GATEWAY = Container(
    service="gateway", id="gw", state="running", config_hash="g1", image_id="sha256:g", started_at=2.0
)


@pytest.mark.parametrize(
    ("there", "weight_cache", "engine", "gateway", "drops"),
    [
        ([], "create", "create", "create", False),
        ([CACHE, ENGINE, GATEWAY], "keep", "keep", "keep", False),
        # Settings of the engine alone leave the weights where they are.
        ([CACHE, replace(ENGINE, config_hash="v0"), GATEWAY], "keep", "recreate", "keep", False),
        ([CACHE, ENGINE, replace(GATEWAY, config_hash="g0")], "keep", "keep", "recreate", False),
        # A new weight cache takes the engine with it and drops what was held.
        ([replace(CACHE, config_hash="w0"), ENGINE, GATEWAY], "recreate", "recreate", "keep", True),
        ([replace(CACHE, image_id="sha256:j"), ENGINE, GATEWAY], "recreate", "recreate", "keep", True),
        ([replace(CACHE, model="B"), replace(ENGINE, model="B"), GATEWAY],
         "recreate", "recreate", "keep", True),
        # Nothing is held by a weight cache that does not run.
        ([replace(CACHE, config_hash="w0", state="exited"), GATEWAY], "recreate", "create", "keep", False),
        # docker kill, reboot.
        ([CACHE, replace(ENGINE, state="exited", exit_code=137), GATEWAY], "keep", "start", "keep", False),
        ([replace(CACHE, state="exited"), ENGINE, GATEWAY], "start", "recreate", "keep", False),
        ([replace(CACHE, state="exited"), replace(ENGINE, state="exited"), GATEWAY],
         "start", "start", "keep", False),
        # The weight cache was started again, or made again, behind the engine's back.
        ([replace(CACHE, started_at=9.0), ENGINE, GATEWAY], "keep", "recreate", "keep", False),
        ([replace(CACHE, id="new"), ENGINE, GATEWAY], "keep", "recreate", "keep", False),
        ([replace(CACHE, id="new"), replace(ENGINE, state="exited"), GATEWAY],
         "keep", "recreate", "keep", False),
        ([ENGINE, GATEWAY], "create", "recreate", "keep", False),
    ],
)  # fmt: skip
def test_decision(there: list[Container], weight_cache: str, engine: str, gateway: str, drops: bool) -> None:
    """Cases 5, 17 and 30."""
    changes = decide(WANT, there)
    found = {item.service: item.action for item in changes.items}
    assert found == {"weight-cache": weight_cache, "vllm": engine, "gateway": gateway}
    assert changes.drops_weights is drops
    assert changes.items[0].service == "weight-cache"
    assert changes.nothing is (set(found.values()) == {"keep"})


def test_either_hash_of_a_service_that_joins_a_namespace_is_unchanged() -> None:
    want = (replace(WANT[0], joined_hash="v1-joined"), *WANT[1:])
    for config_hash, action in (("v1", "keep"), ("v1-joined", "keep"), ("v0", "recreate")):
        change = decide(want, [CACHE, replace(ENGINE, config_hash=config_hash), GATEWAY]).of("vllm")
        assert change is not None
        assert change.action == action


def test_reasons_name_what_changed() -> None:
    changes = decide(
        WANT, [replace(CACHE, model="B"), replace(ENGINE, state="exited", exit_code=137), GATEWAY]
    )
    assert [item.why for item in changes.items] == [
        "model B → A",
        "it lives in the IPC namespace of the weight cache, which is new",
        "unchanged",
    ]


SURGE = replace(ENGINE, service="vllm-surge", id="su", config_hash="s1")
WANT_SURGE = DesiredService(name="vllm-surge", config_hash="s1", image_id="sha256:i", model="A")


@pytest.mark.parametrize(
    ("want", "there", "action"),
    [
        ((*WANT, WANT_SURGE), [CACHE, ENGINE, GATEWAY], "create"),
        ((*WANT, WANT_SURGE), [CACHE, ENGINE, SURGE, GATEWAY], "keep"),
        ((*WANT, replace(WANT_SURGE, joined_hash="s1-joined")),
         [CACHE, ENGINE, replace(SURGE, config_hash="s1-joined"), GATEWAY], "keep"),
        ((*WANT, WANT_SURGE), [CACHE, ENGINE, replace(SURGE, config_hash="s0"), GATEWAY], "recreate"),
        # It lives in the weight cache's namespace like the first engine.
        ((*WANT, WANT_SURGE), [replace(CACHE, started_at=9.0), ENGINE, SURGE, GATEWAY], "recreate"),
        ((*WANT, WANT_SURGE), [replace(CACHE, config_hash="w0"), ENGINE, SURGE, GATEWAY], "recreate"),
        # Left over from a roll, or from the time when a standby was wished.
        (WANT, [CACHE, ENGINE, SURGE, GATEWAY], "remove"),
    ],
)  # fmt: skip
def test_a_second_engine(want: tuple[DesiredService, ...], there: list[Container], action: str) -> None:
    change = decide(want, there).of("vllm-surge")
    assert change is not None
    assert change.action == action


def test_a_service_that_the_file_no_longer_has_is_removed() -> None:
    changes = decide(WANT[:2], [CACHE, ENGINE, GATEWAY])
    assert changes.services("remove") == ("gateway",)
