"""Facts about a host → what is done to it, or why nothing is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from warmops.host import Decision, HostFacts, Step, decide

MINIMUM = (2, 30, 0)
READY = HostFacts(
    engine_answers=True,
    engine_denied=False,
    docker_host=None,
    has_client=True,
    has_dockerd=True,
    compose=(5, 6, 1),
    distribution="debian",
    root=True,
    systemd=False,
)
BARE = replace(READY, engine_answers=False, has_client=False, has_dockerd=False, compose=None)
START = Step.START_BY_HAND


@pytest.mark.parametrize(
    ("facts", "steps"),
    [
        (READY, ()),
        (replace(READY, root=False), ()),
        (replace(READY, compose=MINIMUM), ()),
        (replace(READY, docker_host="tcp://127.0.0.1:2375"), ()),
        (replace(READY, compose=(2, 29, 9)), (Step.INSTALL_COMPOSE,)),
        (replace(READY, compose=None, root=False), (Step.INSTALL_COMPOSE,)),
        (BARE, (Step.INSTALL_ENGINE, START, Step.INSTALL_COMPOSE)),
        (replace(BARE, distribution="ubuntu"), (Step.INSTALL_ENGINE, START, Step.INSTALL_COMPOSE)),
        (replace(BARE, systemd=True), (Step.INSTALL_ENGINE, Step.START_SYSTEMD, Step.INSTALL_COMPOSE)),
        # A client with no engine beside it, as a desktop product leaves behind.
        (replace(BARE, has_client=True), (Step.INSTALL_ENGINE, START, Step.INSTALL_COMPOSE)),
        (replace(READY, engine_answers=False), (START,)),
        (replace(READY, engine_answers=False, systemd=True), (Step.START_SYSTEMD,)),
        (replace(READY, engine_answers=False, distribution="fedora", systemd=True), (Step.START_SYSTEMD,)),
        (replace(BARE, has_dockerd=True), (Step.INSTALL_CLIENT, START, Step.INSTALL_COMPOSE)),
    ],
)
def test_steps(facts: HostFacts, steps: tuple[Step, ...]) -> None:
    assert decide(facts, install=True, compose_minimum=MINIMUM) == Decision(steps=steps)


@pytest.mark.parametrize(
    ("facts", "install", "refusal", "hint"),
    [
        (BARE, False, "INSTALL_DOCKER=no", "apt-get install docker.io iptables debootstrap && dockerd &"),
        (replace(READY, engine_answers=False), False, "INSTALL_DOCKER=no", "dockerd &"),
        (replace(READY, compose=None), False, "Compose 2.30.0 or newer", "compose plugin"),
        (replace(BARE, root=False), True, "only root", "sudo apt-get install docker.io"),
        (
            replace(READY, engine_answers=False, root=False, systemd=True),
            True,
            "only root",
            "sudo systemctl start docker",
        ),
        (replace(BARE, distribution="fedora"), True, "Debian and Ubuntu only", "package manager"),
        (replace(BARE, distribution="ubuntu", root=False), True, "only root", "debian-archive-keyring"),
        (
            replace(READY, engine_answers=False, engine_denied=True, root=False),
            True,
            "may not use it",
            "usermod",
        ),
        (
            replace(READY, engine_answers=False, docker_host="tcp://127.0.0.1:1"),
            True,
            "DOCKER_HOST=tcp://127.0.0.1:1",
            "unset DOCKER_HOST",
        ),
    ],
)
def test_refusals_change_nothing_and_say_what_to_do(
    facts: HostFacts, install: bool, refusal: str, hint: str
) -> None:
    decision = decide(facts, install=install, compose_minimum=MINIMUM)
    assert decision.steps == ()
    assert refusal in (decision.refusal or "")
    assert hint in (decision.hint or "")
