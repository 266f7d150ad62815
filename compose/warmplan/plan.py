"""The decision: everything the Compose file says, as a tree of frozen dataclasses.

In: spec, resolved model, pins, facts of the host for checks. Out: `Plan`. Templates show its fields and
decide nothing. The host never shapes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from warmplan.budget import Budget, compute_budget
from warmplan.chat import open_webui_variables
from warmplan.commands import (
    CACHE,
    SOCKETS,
    common_variables,
    engine_variables,
    preload_command,
    serve_command,
)
from warmplan.compatibility import refuse_quantisation, refuse_version
from warmplan.errors import Problem, UserError
from warmplan.host import HostFacts
from warmplan.identity import Identity, compute_identity
from warmplan.lock import LockedModel
from warmplan.pins import Pins
from warmplan.services import Gpus, Health, Mount, Port, Service, Volume
from warmplan.spec import Setting, Spec

HUB_VOLUME: Final = "warmstack-hub"
LOCAL_MODEL: Final = "/model"
UNLOCKED: Final = "unlocked"
_PROBE_SECONDS: Final = 5
# Longer than any load: until it ends a failing probe says "starting", never "unhealthy".
_LOAD_SECONDS: Final = 3600


@dataclass(frozen=True, kw_only=True)
class PlannedModel:
    """The model inside the containers. `digest` is None for a plan that is not locked."""

    name: str
    served_name: str
    path: str
    digest: str | None
    commit: str | None
    source: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What will run. A plan with `locked` False can be read but not brought up: its model is not resolved."""

    environment: str
    project: str
    platform: str
    model: PlannedModel
    vllm_version: str
    identity: Identity
    budget: Budget
    weight_cache: Service
    engine: Service
    gateway: Service
    open_webui: Service | None
    compile_volume: str
    volumes: tuple[Volume, ...]
    secrets: tuple[str, ...]
    api_url: str
    chat_url: str | None
    settings: tuple[Setting, ...]

    @property
    def locked(self) -> bool:
        return self.identity.locked

    @property
    def services(self) -> tuple[Service, ...]:
        chat = (self.open_webui,) if self.open_webui is not None else ()
        return (self.weight_cache, self.engine, self.gateway, *chat)


def plan_stack(
    *, spec: Spec, pins: Pins, model: LockedModel | None = None, host: HostFacts | None = None
) -> Plan:
    """Decide everything.

    `model` is the lock's entry (`Lock.find`) or a manifest's (`model_from_manifest`); None gives a plan that
    is not locked. Errors: `UserError` (exit code 2): a version or quantisation that does not work, memory
    that does not suffice.
    """
    version = pins.vllm(spec.platform)
    _refuse(spec, model, version)
    identity = compute_identity(spec=spec, model=model, vllm_version=version)
    budget = compute_budget(spec=spec, model=model, host=host)
    planned = _model(spec, model)
    tag = f"{version}-{spec.platform}"
    compile_volume = f"compile-{tag}-{spec.gpu.architecture}" if spec.platform == "cuda" else f"compile-{tag}"
    chat = _open_webui(spec, pins) if spec.open_webui.enabled else None
    return Plan(
        environment=spec.environment,
        project=spec.project,
        platform=spec.platform,
        model=planned,
        vllm_version=version,
        identity=identity,
        budget=budget,
        weight_cache=_weight_cache(spec, identity, budget, planned, tag),
        engine=_engine(spec, identity, budget, planned, tag, compile_volume),
        gateway=_gateway(spec, pins),
        open_webui=chat,
        compile_volume=compile_volume,
        volumes=_volumes(compile_volume, chat=chat is not None),
        secrets=_secrets(spec),
        api_url=f"http://{_reachable(spec.gateway.host)}:{spec.gateway.port}/v1",
        chat_url=spec.open_webui.url if chat is not None else None,
        settings=spec.settings,
    )


def _refuse(spec: Spec, model: LockedModel | None, version: str) -> None:
    """Stop at what is known not to work."""
    problems = []
    sentence = refuse_version(version, platform=spec.platform)
    if sentence is not None:
        problems.append(
            Problem(key=f"vllm.{spec.platform}.version", problem=sentence, file="compose/pins.yaml")
        )
    method = model.facts.quant_method if model is not None else None
    refused = refuse_quantisation(method, platform=spec.platform)
    if refused is not None:
        problems.append(
            Problem(key="model.name", problem=f"{spec.model.name}: {refused[0]}", hint=refused[1])
        )
    if problems:
        raise UserError(problems)


def _model(spec: Spec, model: LockedModel | None) -> PlannedModel:
    digest = model.digest if model is not None else None
    folder = f"/hub/models/{spec.model.name.replace('/', '--')}/{digest[:16] if digest else UNLOCKED}"
    return PlannedModel(
        name=spec.model.name,
        served_name=spec.model.served_name,
        path=LOCAL_MODEL if spec.model.is_local else folder,
        digest=digest,
        commit=model.commit if model is not None else None,
        source=model.source if model is not None else "unresolved",
    )


def _model_mount(spec: Spec) -> Mount:
    if spec.model.is_local:
        return Mount(kind="bind", source=spec.model.name, target=LOCAL_MODEL, read_only=True)
    return Mount(kind="volume", source=HUB_VOLUME, target="/hub", read_only=True)


def _sockets() -> Mount:
    return Mount(kind="volume", source="sockets", target=SOCKETS, read_only=False)


def _gpus(spec: Spec) -> Gpus | None:
    return None if spec.platform == "cpu" else Gpus(count=spec.gpu.count, devices=spec.gpu.devices)


def _labels(identity: Identity, model: PlannedModel, role: str) -> tuple[tuple[str, str], ...]:
    return (
        ("warmstack.identity", identity.value),
        ("warmstack.model", model.name),
        ("warmstack.role", role),
    )


def _contract(spec: Spec, identity: Identity, model: PlannedModel) -> tuple[tuple[str, str], ...]:
    """Variables of docs/architecture.md that both containers get."""
    return (
        ("WARMSTACK_IDENTITY", identity.value),
        ("WARMSTACK_MODEL_DIGEST", model.digest or UNLOCKED),
        ("WARMSTACK_MODEL_PATH", model.path),
        ("WARMSTACK_MODEL", model.name),
        ("WARMSTACK_PLATFORM", spec.platform),
    )


def _weight_cache(spec: Spec, identity: Identity, budget: Budget, model: PlannedModel, tag: str) -> Service:
    """The service that holds the weights. Nothing volatile goes in here: any change drops the weights."""
    return Service(
        name="weight-cache",
        image=f"warmstack/weight-cache:{tag}",
        command=preload_command(
            spec=spec, identity=identity, path=model.path, revision=model.digest or UNLOCKED
        ),
        environment=(
            *_contract(spec, identity, model),
            ("WARMSTACK_WEIGHT_BYTES", str(budget.rank_weight_bytes or 0)),
            ("WARMSTACK_RANKS", str(spec.tensor)),
            ("WARMSTACK_MAX_RESTARTS", str(spec.weight_cache.max_restarts)),
            *common_variables(spec),
            *spec.weight_cache.environment,
        ),
        labels=_labels(identity, model, "weight-cache"),
        mounts=(_model_mount(spec), _sockets()),
        networks=("backend",),
        health=Health(
            command=("warmstack-probe", "health"),
            interval=10,
            timeout=_PROBE_SECONDS,
            retries=3,
            start_period=_LOAD_SECONDS,
        ),
        stop_seconds=30,
        gpus=_gpus(spec),
        shm_bytes=budget.shm_bytes,
        ipc="shareable",
    )


def _engine(
    spec: Spec,
    identity: Identity,
    budget: Budget,
    model: PlannedModel,
    tag: str,
    compile_volume: str,
) -> Service:
    """The service that answers; it may be recycled at any time."""
    compiled = Mount(kind="volume", source=compile_volume, target=CACHE, read_only=False)
    return Service(
        name="vllm",
        image=f"warmstack/vllm:{tag}",
        command=serve_command(
            spec=spec, identity=identity, budget=budget, path=model.path, revision=model.digest or UNLOCKED
        ),
        environment=(
            *_contract(spec, identity, model),
            ("WARMSTACK_MAX_RESTARTS", str(spec.engine.max_restarts)),
            ("WARMSTACK_WAIT_SECONDS", str(spec.engine.wait_seconds)),
            ("WARMSTACK_ON_MISS", spec.engine.on_miss),
            ("WARMSTACK_HANG_SECONDS", str(spec.engine.hang_seconds)),
            *common_variables(spec),
            *engine_variables(spec),
        ),
        labels=(*_labels(identity, model, "engine"), *spec.labels),
        mounts=(_model_mount(spec), _sockets(), compiled),
        networks=("backend",),
        health=Health(
            command=("warmstack-probe", "engine"),
            interval=10,
            timeout=_PROBE_SECONDS,
            retries=3,
            start_period=_LOAD_SECONDS,
        ),
        stop_seconds=30,
        gpus=_gpus(spec),
        ipc="service:weight-cache",
    )


def _gateway(spec: Spec, pins: Pins) -> Service:
    return Service(
        name="gateway",
        image=f"warmstack/gateway:{pins.gateway}",
        command=(),
        environment=(
            ("WARMSTACK_HOLD", f"{spec.gateway.hold_seconds}s"),
            ("WARMSTACK_API_KEY", "required" if spec.gateway.api_key else "off"),
        ),
        labels=spec.labels,
        mounts=(),
        networks=("backend", "frontend"),
        health=Health(
            command=("warmstack-gateway-probe",),
            interval=10,
            timeout=_PROBE_SECONDS,
            retries=3,
            start_period=30,
        ),
        stop_seconds=15,
        ports=(Port(host=spec.gateway.host, published=spec.gateway.port, target=8080),),
        secrets=("api_key",) if spec.gateway.api_key else (),
    )


def _open_webui(spec: Spec, pins: Pins) -> Service:
    return Service(
        name="open-webui",
        image=f"warmstack/open-webui:{pins.open_webui}",
        command=(),
        environment=open_webui_variables(spec),
        labels=spec.labels,
        mounts=(Mount(kind="volume", source="open-webui", target="/data", read_only=False),),
        networks=("frontend",),
        health=Health(
            command=("warmstack-webui", "probe"),
            interval=10,
            timeout=_PROBE_SECONDS,
            retries=3,
            start_period=120,
        ),
        stop_seconds=15,
        ports=(Port(host=spec.open_webui.host, published=spec.open_webui.port, target=8080),),
        secrets=_secrets(spec),
    )


def _secrets(spec: Spec) -> tuple[str, ...]:
    chat = ("webui_secret_key", "webui_admin_password") if spec.open_webui.enabled else ()
    return (*chat, *(("api_key",) if spec.gateway.api_key else ()))


def _volumes(compile_volume: str, *, chat: bool) -> tuple[Volume, ...]:
    own = ("sockets", compile_volume, *(("open-webui",) if chat else ()))
    return (
        Volume(name=HUB_VOLUME, external=True),
        *(Volume(name=name, external=False) for name in own),
    )


def _reachable(host: str) -> str:
    """The address to show for a published one: 0.0.0.0 is no address that a client can use."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)
    return f"[{shown}]" if ":" in shown and not shown.startswith("[") else shown
