"""What the plan wrote for the weight cache.

In: the environment and the arguments of `vllm preload`. Out: `Settings`, or `Failure` naming what is wrong.
Nobody else in this package reads the environment.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from warmstack_shared.errors import wrong_setting


@dataclass(frozen=True, kw_only=True)
class Settings:
    identity: str
    model: str
    model_digest: str
    model_path: Path
    weight_bytes: int  # of one rank
    ranks: int
    platform: str  # cpu, cuda
    max_restarts: int
    fork_ranks: bool
    socket_folder: Path  # where vLLM's ranks listen
    health_port: int  # vLLM's own
    supervisor_socket: str
    status_host: str
    status_port: int
    gpus: tuple[str, ...]  # as CUDA_VISIBLE_DEVICES names them; none: the first ones
    preload: tuple[str, ...]  # arguments of `vllm preload`


def read_settings(environment: Mapping[str, str], arguments: list[str]) -> Settings:
    return Settings(
        identity=_text(environment, "WARMSTACK_IDENTITY"),
        model=_text(environment, "WARMSTACK_MODEL"),
        model_digest=_text(environment, "WARMSTACK_MODEL_DIGEST"),
        model_path=Path(_text(environment, "WARMSTACK_MODEL_PATH")),
        weight_bytes=_count(environment, "WARMSTACK_WEIGHT_BYTES"),
        ranks=_count(environment, "WARMSTACK_RANKS"),
        platform=_platform(environment),
        max_restarts=_count(environment, "WARMSTACK_MAX_RESTARTS"),
        fork_ranks=_switch(environment, "WARMSTACK_FORK_RANKS"),
        socket_folder=Path(_option(arguments, "--weight-cache-socket-dir")),
        health_port=int(_option(arguments, "--weight-cache-health-port")),
        supervisor_socket=environment.get("WARMSTACK_SUPERVISOR_SOCKET", "/run/warmstack/supervisor.sock"),
        status_host=environment.get("WARMSTACK_STATUS_HOST", "0.0.0.0"),
        status_port=int(environment.get("WARMSTACK_STATUS_PORT", "8900")),
        gpus=tuple(filter(None, environment.get("CUDA_VISIBLE_DEVICES", "").split(","))),
        preload=tuple(arguments),
    )


def _text(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name, "") or wrong_setting(name, "is not set")


def _count(environment: Mapping[str, str], name: str) -> int:
    text = _text(environment, name)
    return int(text) if text.isdecimal() and int(text) > 0 else wrong_setting(name, f"{text!r} is no count")


def _switch(environment: Mapping[str, str], name: str) -> bool:
    text = environment.get(name, "off")
    return text == "on" if text in ("on", "off") else wrong_setting(name, f"{text!r} is not on or off")


def _platform(environment: Mapping[str, str]) -> str:
    text = _text(environment, "WARMSTACK_PLATFORM")
    return (
        text
        if text in ("cpu", "cuda")
        else wrong_setting("WARMSTACK_PLATFORM", f"{text!r} is not cpu or cuda")
    )


def _option(arguments: list[str], name: str) -> str:
    for at, argument in enumerate(arguments):
        if argument == name and at + 1 < len(arguments):
            return arguments[at + 1]
        if argument.startswith(name + "="):
            return argument.partition("=")[2]
    return wrong_setting(name, "is missing in the arguments of vllm preload")
