"""Where the weight cache runs: in a container, or as a process of the host; and how the two sides meet.

In: a spec and the model's folder inside containers. Out: `Place`. It does not know commands and units.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from warmplan.services import Mount
from warmplan.spec import Spec

HUB_VOLUME: Final = "warmstack-hub"
HUB: Final = "/hub"
LOCAL_MODEL: Final = "/model"
SOCKETS: Final = "/run/warmstack"
CACHE: Final = "/cache"
HEALTH_PORT: Final = 8901
# On the host. `up` fetches models there, systemd makes the other two kinds.
HOST_STATE: Final = "/var/lib/warmstack"
HOST_CACHE: Final = "/var/cache/warmstack"
HOST_HUB: Final = f"{HOST_STATE}/hub"
# As in the image, because a virtual environment knows its own path.
HOST_VENV: Final = "/opt/venv"
HOST_CODE: Final = "/opt/warmstack"
_SHORT: Final = 8


@dataclass(frozen=True, kw_only=True)
class Place:
    """How the weight cache sees its files, and how an engine gets to them.

    `variables` are those that only this place needs. `ipc` is the engine's.
    """

    on_host: bool
    model_path: str
    sockets: str
    cache: str
    health_port: int
    variables: tuple[tuple[str, str], ...]
    model_mount: Mount
    sockets_mount: Mount
    ipc: str


def place_of(spec: Spec, model_path: str) -> Place:
    """The place that a spec asks for; `model_path` is the model's folder inside a container."""
    return _host(spec, model_path) if spec.weight_cache.on_host else _container(spec, model_path)


def host_folder(project: str) -> str:
    """The folder of a project's sockets on the host, relative to `HOST_STATE`.

    A hash and not the name: a socket's path has 107 characters at most, and vLLM needs 62 of them below this
    folder, the identity 17.
    """
    return hashlib.sha256(project.encode()).hexdigest()[:_SHORT]


def _container(spec: Spec, model_path: str) -> Place:
    return Place(
        on_host=False,
        model_path=model_path,
        sockets=SOCKETS,
        cache=CACHE,
        health_port=HEALTH_PORT,
        variables=(),
        model_mount=_model_mount(spec, Mount(kind="volume", source=HUB_VOLUME, target=HUB, read_only=True)),
        sockets_mount=Mount(kind="volume", source="sockets", target=SOCKETS, read_only=False),
        ipc="service:weight-cache",
    )


def _host(spec: Spec, model_path: str) -> Place:
    folder = host_folder(spec.project)
    sockets = f"{HOST_STATE}/{folder}"
    return Place(
        on_host=True,
        model_path=spec.model.name if spec.model.is_local else model_path.replace(HUB, HOST_HUB, 1),
        sockets=sockets,
        cache=f"{HOST_CACHE}/{folder}",
        health_port=spec.weight_cache.port + 1,
        variables=(
            ("PATH", f"{HOST_VENV}/bin:/usr/local/bin:/usr/bin:/bin"),
            ("PYTHONPATH", HOST_CODE),
            ("WARMSTACK_SUPERVISOR_SOCKET", f"{sockets}/supervisor.sock"),
            ("WARMSTACK_STATUS_HOST", "127.0.0.1"),
            ("WARMSTACK_STATUS_PORT", str(spec.weight_cache.port)),
            # torch asks DNS for the name of ::ffff:127.0.0.1; where none answers it would wait for 10 s.
            ("RES_OPTIONS", "timeout:1 attempts:1"),
            *_gpus(spec),
        ),
        model_mount=_model_mount(spec, Mount(kind="bind", source=HOST_HUB, target=HUB, read_only=True)),
        sockets_mount=Mount(kind="bind", source=sockets, target=SOCKETS, read_only=True),
        ipc="host",
    )


def _model_mount(spec: Spec, hub: Mount) -> Mount:
    if spec.model.is_local:
        return Mount(kind="bind", source=spec.model.name, target=LOCAL_MODEL, read_only=True)
    return hub


def _gpus(spec: Spec) -> tuple[tuple[str, str], ...]:
    """A process of the host sees every GPU: it gets those that Docker would hand over, in the same order."""
    if spec.platform == "cpu":
        return ()
    named = spec.gpu.devices or tuple(str(index) for index in range(spec.gpu.count))
    return (("CUDA_DEVICE_ORDER", "PCI_BUS_ID"), ("CUDA_VISIBLE_DEVICES", ",".join(named)))
