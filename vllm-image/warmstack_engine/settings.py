"""What the plan wrote for the engine.

In: the environment and the arguments of `vllm serve`. Out: `Settings`, or `Failure` naming the variable.
Nobody else in this package reads the environment.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from warmstack_shared.errors import wrong_setting

DEFAULT_PORT = 8000


@dataclass(frozen=True, kw_only=True)
class Settings:
    identity: str
    model: str
    model_digest: str
    model_path: Path
    supervisor_socket: str
    wait_seconds: float
    on_miss: str  # refuse, disk
    hang_seconds: float  # 0: off
    max_restarts: int
    standby: bool  # one of two engines: it may be the other one that is asked
    nursery: bool  # engines are forked from a process that has imported vLLM
    imports_list: Path  # what it has learned to import
    care_seconds: float  # between two looks at what the nursery could learn from an engine that serves
    compile_folders: tuple[Path, ...]  # caches of compiled code, which may be set aside
    control_socket: str
    status_port: int
    port: int
    serve: tuple[str, ...]  # arguments of `vllm serve`


def read_settings(environment: Mapping[str, str], arguments: list[str]) -> Settings:
    return Settings(
        identity=_text(environment, "WARMSTACK_IDENTITY"),
        model=_text(environment, "WARMSTACK_MODEL"),
        model_digest=_text(environment, "WARMSTACK_MODEL_DIGEST"),
        model_path=Path(_text(environment, "WARMSTACK_MODEL_PATH")),
        supervisor_socket=environment.get("WARMSTACK_SUPERVISOR_SOCKET", "/run/warmstack/supervisor.sock"),
        wait_seconds=_number(environment, "WARMSTACK_WAIT_SECONDS"),
        on_miss=_one_of(environment, "WARMSTACK_ON_MISS", ("refuse", "disk")),
        hang_seconds=_number(environment, "WARMSTACK_HANG_SECONDS"),
        max_restarts=int(_number(environment, "WARMSTACK_MAX_RESTARTS")),
        standby=_switch(environment, "WARMSTACK_STANDBY"),
        nursery=_switch(environment, "WARMSTACK_NURSERY"),
        care_seconds=float(environment.get("WARMSTACK_CARE_SECONDS", "10")),
        imports_list=Path(environment.get("WARMSTACK_IMPORTS_LIST", "/cache/warmstack/imports.json")),
        control_socket=environment.get("WARMSTACK_ENGINE_SOCKET", "/tmp/warmstack-engine.sock"),
        compile_folders=_compile_folders(environment),
        status_port=int(environment.get("WARMSTACK_ENGINE_STATUS_PORT", "8902")),
        port=_port(arguments),
        serve=tuple(arguments),
    )


def _compile_folders(environment: Mapping[str, str]) -> tuple[Path, ...]:
    places = (
        ("VLLM_CACHE_ROOT", "torch_compile_cache"),
        ("TORCHINDUCTOR_CACHE_DIR", ""),
        ("TRITON_CACHE_DIR", ""),
        ("FLASHINFER_WORKSPACE_BASE", ".cache/flashinfer"),
    )
    return tuple(Path(environment[name]) / below for name, below in places if environment.get(name))


def _text(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "")
    return value or wrong_setting(name, "is not set")


def _number(environment: Mapping[str, str], name: str) -> float:
    text = _text(environment, name)
    try:
        number = float(text)
    except ValueError:
        wrong_setting(name, f"{text!r} is not a number")
    return number if number >= 0 else wrong_setting(name, f"{text} is below 0")


def _switch(environment: Mapping[str, str], name: str) -> bool:
    """Off when it is not set."""
    return _one_of({name: "off", **environment}, name, ("on", "off")) == "on"


def _one_of(environment: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    text = _text(environment, name)
    return text if text in choices else wrong_setting(name, f"{text!r} is none of {', '.join(choices)}")


def _port(arguments: list[str]) -> int:
    for at, argument in enumerate(arguments):
        if argument == "--port" and at + 1 < len(arguments):
            return int(arguments[at + 1])
        if argument.startswith("--port="):
            return int(argument.partition("=")[2])
    return DEFAULT_PORT
