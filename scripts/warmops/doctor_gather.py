"""The facts for `doctor`: thin questions to Docker, the kernel, the driver and the hub, asked side by side.

In: a Docker client, the wish and its plan. Out: `DoctorFacts`. What a fact means is decided in
`doctor_checks`. Each start of the docker command costs a tenth of a second: few are made.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal, ParamSpec, TypeVar
from urllib.parse import urlsplit

from warmops.changes import ENGINE, WEIGHT_CACHE
from warmops.docker import Docker, DockerError
from warmops.doctor_facts import (
    DoctorFacts,
    EngineFacts,
    GpuHost,
    HostCacheFacts,
    MachineFacts,
    PortFacts,
    WishFacts,
)
from warmops.doctor_gpu import gpu_host
from warmops.doctor_hub import hub_facts
from warmops.host_cache import HostCache
from warmops.hostfacts import cdi_devices, memory_kib, port_problem
from warmops.model import folder_problems
from warmops.pins import read_pins
from warmops.project import STATE, read_remembered
from warmplan import Plan, Spec
from warmplan.placement import HOST_HUB, HUB_VOLUME

P = ParamSpec("P")
R = TypeVar("R")
# vLLM 0.33.0 is built with torch 2.11.0+cu130 (from the wheels). An image that is here tells it itself.
_CUDA_OF_VLLM: Final = {"0.33.0": "13.0"}


def gather_facts(
    docker: Docker,
    *,
    spec: Spec | None,
    plan: Plan | None,
    problem: str | None = None,
    hint: str | None = None,
    network: bool = True,
) -> DoctorFacts:
    """Everything at once. `problem` and `hint`: why there is no plan. Without `network` no hub is asked."""
    cuda = spec is not None and spec.platform == "cuda"
    ask_hub = network and spec is not None and not spec.model.is_local and not spec.model.offline
    with ThreadPoolExecutor(max_workers=6) as pool:
        asked = pool.submit(engine_facts, docker, pool.submit(api_version, docker))
        gpu = pool.submit(gpu_host) if cuda else None
        model = spec.model if ask_hub and spec is not None else None
        hub = pool.submit(hub_facts, os.environ, model)
        wish = pool.submit(wish_facts, docker, spec, plan) if spec is not None else None
        engine = asked.result()
        return DoctorFacts(
            engine=engine,
            gpu=gpu.result() if gpu is not None else GpuHost(),
            machine=MachineFacts(
                memory_available_bytes=memory_kib("MemAvailable") * 1024,
                disk_free_bytes=disk_free(Path(engine.folder)) if engine.folder else None,
                dev_shm_bytes=shutil.disk_usage("/dev/shm").total,
                pid_max=_number(Path("/proc/sys/kernel/pid_max")),
                selinux=selinux_state(Path("/sys/fs/selinux/enforce")),
            ),
            hub=hub.result(),
            wish=wish.result() if wish is not None else None,
            wish_problem=problem,
            wish_hint=hint,
            compose_minimum=read_pins().compose_minimum,
        )


def engine_facts(docker: Docker, api: Future[str]) -> EngineFacts:
    """What `docker info` tells; the client's own part is there without an engine too."""
    before = time.time()
    try:
        told = docker.capture("info", "--format", "{{json .}}", check=False)
    except DockerError as error:
        return EngineFacts(problem=error.problems[0].problem)
    middle = (before + time.time()) / 2
    try:
        info = json.loads(told.stdout)
    except ValueError:
        return EngineFacts(problem=_last_line(told.stderr) or "`docker info` printed no JSON")
    return engine_from(info, api=api.result(), now=middle, said=told.stderr)


def api_version(docker: Docker) -> str:
    """The API version that client and engine speak; empty without an engine."""
    told = _or_none(docker.capture, "version", "--format", "{{.Server.APIVersion}}", check=False)
    return told.stdout.strip() if told is not None else ""


def engine_from(info: Mapping[str, Any], *, api: str, now: float, said: str = "") -> EngineFacts:
    """The engine as `docker info` printed it at the unix second `now`; `said` is what stood on its stderr."""
    plugins = (info.get("ClientInfo") or {}).get("Plugins") or ()
    compose = next((str(p.get("Version")) for p in plugins if p.get("Name") == "compose"), None)
    compose = compose.removeprefix("v") if compose is not None else None
    errors = info.get("ServerErrors") or ()
    if errors or not info.get("ServerVersion"):
        problem = _last_line("\n".join(errors)) or _last_line(said) or "no Docker engine answers"
        return EngineFacts(problem=problem, compose=compose)
    return EngineFacts(
        version=str(info["ServerVersion"]),
        api=api,
        compose=compose,
        runtimes=tuple(sorted(info.get("Runtimes") or ())),
        cdi_devices=cdi_devices(info),
        cgroup_driver=str(info.get("CgroupDriver") or ""),
        security_options=tuple(info.get("SecurityOptions") or ()),
        folder=str(info.get("DockerRootDir") or ""),
        clock_offset_seconds=_seconds_ahead(str(info.get("SystemTime") or ""), now),
    )


def wish_facts(docker: Docker, spec: Spec, plan: Plan | None) -> WishFacts:
    """What the environment asks, and what of it is here already."""
    own = _or_none(own_containers, docker, spec.project) or ()
    tags = sorted({service.image for service in plan.services}) if plan is not None else []
    looks = plan is not None or spec.model.offline
    images, volume = _images_and_volume(docker, tags) if looks else ([], None)
    hub = Path(volume["Mountpoint"]) if volume is not None else None
    if spec.weight_cache.on_host:
        hub = Path(HOST_HUB) if Path(HOST_HUB).is_dir() else None
    host_cache = _host_cache(spec)
    return WishFacts(
        environment=spec.environment,
        platform=spec.platform,
        model=spec.model.name,
        is_local=spec.model.is_local,
        offline=spec.model.offline,
        ports=_ports(spec, _own_ports(spec.project, own)),
        gpu_count=spec.gpu.count if spec.platform == "cuda" else 0,
        gpus=spec.gpu.devices,
        cuda=cuda_of(images) or _CUDA_OF_VLLM.get(read_pins().vllm_cuda_version)
        if spec.platform == "cuda"
        else None,
        memory_bytes=needed_memory(plan) if plan is not None else None,
        shm_bytes=plan.weight_cache.shm_bytes if plan is not None else None,
        weight_bytes=plan.budget.weight_bytes if plan is not None else None,
        on_disk=_on_disk(hub, plan) if looks else None,
        images_are_there=len(images) == len(tags) if plan is not None else None,
        folder_problems=folder_problems(spec.model.name, on_host=spec.weight_cache.on_host)
        if spec.model.is_local
        else (),
        runs=any(container.service in (WEIGHT_CACHE, ENGINE) and container.running for container in own)
        or (host_cache is not None and host_cache.state is not None),
        host_cache=host_cache,
    )


def needed_memory(plan: Plan) -> int:
    """Bytes that must be free: the plan's sum without the headroom, of which the driver takes its part.

    The second engine of a roll looks for its memory when a roll begins.
    """
    headroom = sum(part.bytes for part in plan.budget.parts if part.key == "headroom")
    return plan.budget.steady_bytes - headroom


def cuda_of(images: Iterable[Mapping[str, Any]]) -> str | None:
    """`CUDA_VERSION` of the first image that tells it, as the base images of NVIDIA do."""
    for image in images:
        for item in (image.get("Config") or {}).get("Env") or ():
            name, _, value = str(item).partition("=")
            if name == "CUDA_VERSION" and value:
                return value
    return None


def disk_free(folder: Path) -> int | None:
    """Free bytes; None where the folder is not on this host, as with an engine somewhere else."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def selinux_state(enforce: Path) -> Literal["enforcing", "permissive"] | None:
    value = _number(enforce)
    return None if value is None else "enforcing" if value == 1 else "permissive"


def _own_ports(project: str, own: tuple[OwnContainer, ...]) -> frozenset[int]:
    """Ports that are in use because of this project.

    An override may publish the gateway in a way that Docker does not list (host network, a relay): a gateway
    that runs answers at the port of the last `up`.
    """
    settings = read_remembered(STATE / project)
    runs = any(container.service == "gateway" and container.running for container in own)
    known = {urlsplit(settings.gateway_url).port or 0} if settings is not None and runs else set()
    return frozenset(port for container in own for port in container.ports) | known


def _ports(spec: Spec, own: frozenset[int]) -> tuple[PortFacts, ...]:
    wanted = [("PORT", spec.gateway.host, spec.gateway.port)]
    if spec.open_webui.enabled:
        wanted.append(("WEBUI_PORT", spec.open_webui.host, spec.open_webui.port))
    return tuple(
        PortFacts(
            variable=variable, host=host, port=port, problem=None if port in own else port_problem(host, port)
        )
        for variable, host, port in wanted
    )


@dataclass(frozen=True, kw_only=True)
class OwnContainer:
    """A container of the project: `ports` are the host's that it holds."""

    service: str
    running: bool
    ports: tuple[int, ...]


def own_containers(docker: Docker, project: str) -> tuple[OwnContainer, ...]:
    fields = '{{.Label "com.docker.compose.service"}}\t{{.State}}\t{{.Ports}}'
    label = f"label=com.docker.compose.project={project}"
    lines = docker.capture("ps", "--all", "--filter", label, "--format", fields).stdout.splitlines()
    return tuple(own_container(line) for line in lines)


def own_container(line: str) -> OwnContainer:
    """A line of service, state and ports (`127.0.0.1:8000->8080/tcp`) with tabs between."""
    service, state, ports = line.split("\t")
    found = tuple(int(match[1]) for match in re.finditer(r":(\d+)->", ports))
    return OwnContainer(service=service, running=state == "running", ports=found)


def _images_and_volume(docker: Docker, tags: list[str]) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """The images that are there and the volume of model files, in one question; None without the volume."""
    told = _or_none(docker.capture, "inspect", *tags, HUB_VOLUME, check=False)
    found: list[dict[str, Any]] = json.loads((told.stdout if told is not None else "") or "[]")
    volume = next((item for item in found if "Mountpoint" in item), None)
    return [item for item in found if "RootFS" in item], volume


def _host_cache(spec: Spec) -> HostCacheFacts | None:
    if not spec.weight_cache.on_host:
        return None
    cache = HostCache(project=spec.project, port=spec.weight_cache.port)
    state = (cache.status() or {}).get("state")
    return HostCacheFacts(unit=cache.unit, socket=str(cache.socket), state=state)


def _on_disk(folder: Path | None, plan: Plan | None) -> bool | None:
    """Whether the snapshot is in the hub's folder; None when this user cannot look into it, or for what."""
    if folder is None:
        return False
    if plan is None or plan.model.digest is None or not os.access(folder, os.R_OK | os.X_OK):
        return None
    path = Path(plan.model.path)
    return (folder / path.relative_to("/hub")).is_dir() if path.is_relative_to("/hub") else None


def _or_none(question: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> R | None:
    """The answer, or None where Docker gives none: that is told by `engine_facts` alone."""
    try:
        return question(*arguments, **options)
    except DockerError:
        return None


def _seconds_ahead(stamp: str, now: float) -> float | None:
    try:
        return datetime.fromisoformat(stamp).timestamp() - now
    except ValueError:
        return None


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
