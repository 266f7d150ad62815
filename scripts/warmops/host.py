"""A Docker engine on this host: use the running one, or install and start one, or say what to do.

In: facts about the host. Out: an engine that answers a client with a recent Compose plugin, or a UserError
(exit 3) before anything has changed. `decide` is pure: facts to steps or a refusal. Refuses to know what the
engine is for.

An engine started by hand (no systemd) has its pid in PID_FILE and its log in LOG_FILE; `stop_engine` ends
that one alone.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from warmops import console, host_steps
from warmops.docker import Docker, DockerError
from warmops.pins import Pins, read_pins, version_numbers
from warmplan.errors import UserError

SYSTEMD_MARK = Path("/run/systemd/system")


class Step(Enum):
    """What may be done to a host; the value is the sentence that announces it."""

    INSTALL_ENGINE = "install Docker Engine from the distribution"
    INSTALL_CLIENT = "install the docker command from the distribution"
    INSTALL_COMPOSE = "install the Compose plugin"
    START_SYSTEMD = "start the engine with systemd"
    START_BY_HAND = "start dockerd"


@dataclass(frozen=True, kw_only=True)
class HostFacts:
    """What `decide` needs to know."""

    engine_answers: bool
    engine_denied: bool  # a socket is there, and this user may not open it
    docker_host: str | None  # DOCKER_HOST: an engine somewhere else
    has_client: bool
    has_dockerd: bool
    compose: tuple[int, ...] | None
    distribution: str  # "debian", "ubuntu", or another ID of os-release
    root: bool
    systemd: bool


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Steps in order, or a refusal (then no step)."""

    steps: tuple[Step, ...] = ()
    refusal: str | None = None
    hint: str | None = None


def decide(facts: HostFacts, *, install: bool, compose_minimum: tuple[int, ...]) -> Decision:
    """What to do so that an engine answers and Compose is recent enough; nothing when not `install`."""
    engine = Decision() if facts.engine_answers else _decide_engine(facts, install)
    if engine.refusal:
        return engine
    compose_ok = facts.compose is not None and facts.compose >= compose_minimum
    if compose_ok and (facts.has_client or engine.steps):
        return engine
    if not install:
        wanted = ".".join(str(number) for number in compose_minimum)
        return Decision(
            refusal=f"Docker Compose {wanted} or newer is missing; INSTALL_DOCKER=no forbids installing it",
            hint="install Docker's compose plugin, or leave INSTALL_DOCKER out",
        )
    return Decision(steps=(*engine.steps, Step.INSTALL_COMPOSE))


def _decide_engine(facts: HostFacts, install: bool) -> Decision:
    start = Step.START_SYSTEMD if facts.systemd else Step.START_BY_HAND
    commands = start_commands(facts)
    if facts.docker_host:
        return Decision(
            refusal=f"no Docker engine answers at DOCKER_HOST={facts.docker_host}",
            hint="start that engine, or unset DOCKER_HOST to use this host's",
        )
    if facts.engine_denied:
        return Decision(
            refusal="a Docker engine runs here, and this user may not use it",
            hint="sudo usermod -aG docker $USER, log in again; or run this as root",
        )
    if not install:
        return Decision(
            refusal="no Docker engine answers, and INSTALL_DOCKER=no forbids to install or start one",
            hint=commands,
        )
    if not facts.root:
        return Decision(
            refusal="no Docker engine answers, and only root can install or start one", hint=commands
        )
    if facts.has_dockerd:
        return Decision(steps=(start,) if facts.has_client else (Step.INSTALL_CLIENT, start))
    if facts.distribution not in ("debian", "ubuntu"):
        return Decision(
            refusal="no Docker engine answers, and this program can install one on Debian and Ubuntu only",
            hint=commands,
        )
    return Decision(steps=(Step.INSTALL_ENGINE, start))


def start_commands(facts: HostFacts) -> str:
    """The commands by which a person gets an engine on such a host."""
    start = "systemctl start docker" if facts.systemd else "dockerd &"
    sudo = "" if facts.root else "sudo "
    if facts.has_dockerd:
        return f"{sudo}{start}"
    if facts.distribution in ("debian", "ubuntu"):
        packages = " ".join(host_steps.engine_packages(facts.distribution))
        return f"{sudo}apt-get update && {sudo}apt-get install {packages} && {sudo}{start}"
    return f"install Docker Engine with this system's package manager, then {sudo}{start}"


def ensure_docker(docker: Docker | None = None, *, install: bool = True) -> None:
    """After this an engine answers and `docker compose` works. Raises UserError (exit 3) otherwise."""
    docker = docker or Docker()
    pins = read_pins()
    facts = read_facts(docker, os.environ)
    decision = decide(facts, install=install, compose_minimum=pins.compose_minimum)
    if decision.refusal:
        raise console.failure(decision.refusal, decision.hint, exit_code=3)
    if not decision.steps:
        return
    console.heading("this host needs a few things before containers can run; INSTALL_DOCKER=no forbids them:")
    for number, step in enumerate(decision.steps, start=1):
        console.say(f"  {number}. {describe(step, facts, pins)}")
    for step in decision.steps:
        _carry_out(step, facts, docker, pins)


def describe(step: Step, facts: HostFacts, pins: Pins) -> str:
    """One line that says what a step touches."""
    details: Mapping[Step, str] = {
        Step.INSTALL_ENGINE: f"apt-get install {' '.join(host_steps.engine_packages(facts.distribution))}",
        Step.INSTALL_CLIENT: "apt-get install docker-cli or docker.io",
        Step.INSTALL_COMPOSE: f"{pins.compose_lock}, into {host_steps.plugin_folder(facts.root)}",
        Step.START_SYSTEMD: "systemctl start docker",
        Step.START_BY_HAND: f"pid in {host_steps.PID_FILE}, log in {host_steps.LOG_FILE}; "
        "`make docker-stop` ends it",
    }
    return f"{step.value}: {details[step]}"


def read_facts(docker: Docker, environment: Mapping[str, str]) -> HostFacts:
    """Look at this host; changes nothing."""
    has_client = shutil.which(docker.binary) is not None
    answers, denied = _ask_engine(docker) if has_client else (False, False)
    return HostFacts(
        engine_answers=answers,
        engine_denied=denied,
        docker_host=environment.get("DOCKER_HOST") or None,
        has_client=has_client,
        has_dockerd=host_steps.find_dockerd() is not None,
        compose=_compose_version(docker) if has_client else None,
        distribution=_distribution(),
        root=os.geteuid() == 0,
        systemd=SYSTEMD_MARK.is_dir(),
    )


def _ask_engine(docker: Docker) -> tuple[bool, bool]:
    try:
        asked = docker.capture("version", "--format", "{{.Server.Version}}", check=False)
    except DockerError:
        return False, False
    return asked.ok, "permission denied" in asked.stderr


def _compose_version(docker: Docker) -> tuple[int, ...] | None:
    try:
        asked = docker.capture("compose", "version", "--short", check=False)
    except UserError:
        return None
    return version_numbers(asked.stdout) if asked.ok else None


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("ID", "unknown")
    except OSError:
        return platform.system().lower()


def _carry_out(step: Step, facts: HostFacts, docker: Docker, pins: Pins) -> None:
    if step is Step.INSTALL_ENGINE:
        host_steps.install_packages(host_steps.engine_packages(facts.distribution))
        # Debian 13 and later have the command in a package of its own, which older ones do not know.
        if shutil.which(docker.binary) is None:
            host_steps.install_packages(("docker-cli",))
    elif step is Step.INSTALL_CLIENT:
        known = host_steps.apt_knows("docker-cli")
        host_steps.install_packages(("docker-cli",) if known else ("docker.io",))
    elif step is Step.INSTALL_COMPOSE:
        host_steps.install_compose(docker, pins, root=facts.root)
    elif step is Step.START_SYSTEMD:
        host_steps.start_with_systemd(docker)
    else:
        host_steps.start_by_hand(docker)
