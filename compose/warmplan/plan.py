"""The decision: everything the Compose file says, as a tree of frozen dataclasses.

In: spec, resolved model, pins, facts of the host for checks. Out: `Plan`. Templates show its fields and
decide nothing. The host never shapes it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from warmplan.addresses import reachable
from warmplan.budget import Budget, compute_budget
from warmplan.chat import open_webui_variables
from warmplan.commands import (
    common_variables,
    engine_variables,
    may_fork,
    preload_command,
    serve_command,
)
from warmplan.compatibility import refuse_fp8_scales, refuse_quantisation, refuse_version
from warmplan.errors import Problem, UserError
from warmplan.host import HostFacts
from warmplan.identity import Identity, compute_identity
from warmplan.lock import LockedModel
from warmplan.pins import Pins
from warmplan.placement import CACHE, HUB, HUB_VOLUME, LOCAL_MODEL, Place, place_of
from warmplan.services import Gpus, Health, Mount, Port, Service, Volume
from warmplan.spec import Setting, Spec
from warmplan.unit import Unit, plan_unit

SURGE: Final = "vllm-surge"
SURGE_PROFILE: Final = "surge"
UNLOCKED: Final = "unlocked"
GATEWAY_INSIDE: Final = "gateway-metrics"  # alias in the backend network, see gateway.yaml.j2
METRICS_PORT: Final = 9180
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
    """What will run. A plan with `locked` False can be read but not brought up: its model is not resolved.

    With a `unit` the weight cache is a process of the host, and not a service of the Compose file.
    """

    environment: str
    project: str
    platform: str
    model: PlannedModel
    vllm_version: str
    identity: Identity
    budget: Budget
    weight_cache: Service
    unit: Unit | None
    engine: Service
    surge: Service | None
    gateway: Service
    open_webui: Service | None
    compile_volumes: tuple[str, ...]
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
        """Everything in the Compose file."""
        holder = self.weight_cache if self.unit is None else None
        every = (holder, self.engine, self.surge, self.gateway, self.open_webui)
        return tuple(service for service in every if service is not None)

    @property
    def standing(self) -> tuple[Service, ...]:
        """What runs all the time."""
        return tuple(service for service in self.services if not service.profiles)


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
    compiled = f"compile-{tag}-{spec.gpu.architecture}" if spec.platform == "cuda" else f"compile-{tag}"
    place = place_of(spec, planned.path)
    vllm = _Vllm(spec=spec, identity=identity, budget=budget, model=planned, tag=tag, place=place)
    weight_cache = vllm.weight_cache()
    surge = vllm.surge(f"{compiled}-surge") if budget.second != "none" else None
    compile_volumes = (compiled, *((f"{compiled}-surge",) if surge is not None else ()))
    chat = _open_webui(spec, pins) if spec.open_webui.enabled else None
    return Plan(
        environment=spec.environment,
        project=spec.project,
        platform=spec.platform,
        model=planned,
        vllm_version=version,
        identity=identity,
        budget=budget,
        weight_cache=weight_cache,
        unit=plan_unit(spec.project, weight_cache) if place.on_host else None,
        engine=vllm.engine(compiled),
        surge=surge,
        gateway=_gateway(spec, pins),
        open_webui=chat,
        compile_volumes=compile_volumes,
        volumes=_volumes(place, compile_volumes, chat=chat is not None),
        secrets=_secrets(spec),
        api_url=f"http://{reachable(spec.gateway.host)}:{spec.gateway.port}/v1",
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
    block = model.facts.weight_block if model is not None else None
    refused = refuse_quantisation(method, platform=spec.platform) or refuse_fp8_scales(
        method, weight_block=block
    )
    if refused is not None:
        problems.append(
            Problem(key="model.name", problem=f"{spec.model.name}: {refused[0]}", hint=refused[1])
        )
    if problems:
        raise UserError(problems)


def _model(spec: Spec, model: LockedModel | None) -> PlannedModel:
    digest = model.digest if model is not None else None
    folder = f"{HUB}/models/{spec.model.name.replace('/', '--')}/{digest[:16] if digest else UNLOCKED}"
    return PlannedModel(
        name=spec.model.name,
        served_name=spec.model.served_name,
        path=LOCAL_MODEL if spec.model.is_local else folder,
        digest=digest,
        commit=model.commit if model is not None else None,
        source=model.source if model is not None else "unresolved",
    )


@dataclass(frozen=True, kw_only=True)
class _Vllm:
    """What weight cache and engines have in common."""

    spec: Spec
    identity: Identity
    budget: Budget
    model: PlannedModel
    tag: str
    place: Place

    def weight_cache(self) -> Service:
        """What holds the weights. Nothing volatile goes in here: any change drops the weights."""
        spec, model, place = self.spec, self.model, self.place
        holder = self._service(
            name="weight-cache",
            role="weight-cache",
            command=preload_command(
                spec=spec, identity=self.identity, place=place, revision=model.digest or UNLOCKED
            ),
            environment=(
                ("WARMSTACK_WEIGHT_BYTES", str(self.budget.rank_weight_bytes or 0)),
                ("WARMSTACK_RANKS", str(spec.tensor)),
                ("WARMSTACK_MAX_RESTARTS", str(spec.weight_cache.max_restarts)),
                ("WARMSTACK_FORK_RANKS", "on" if spec.weight_cache.fork_ranks and may_fork(spec) else "off"),
                *common_variables(spec, place.cache),
                *place.variables,
                *spec.weight_cache.environment,
            ),
            mounts=(),
            probe="health",
            path=place.model_path,
            shm_bytes=self.budget.shm_bytes,
            ipc="shareable",
        )
        if not place.on_host:
            return holder
        return replace(holder, labels=(), mounts=(), networks=(), ipc=None)

    def engine(self, compile_volume: str) -> Service:
        """The service that answers; it may be recycled at any time."""
        spec, model = self.spec, self.model
        command = serve_command(
            spec=spec,
            identity=self.identity,
            budget=self.budget,
            path=model.path,
            revision=model.digest or UNLOCKED,
        )
        engine = self._service(
            name="vllm",
            role="engine",
            command=command,
            environment=(
                ("WARMSTACK_MAX_RESTARTS", str(spec.engine.max_restarts)),
                ("WARMSTACK_WAIT_SECONDS", str(spec.engine.wait_seconds)),
                ("WARMSTACK_ON_MISS", spec.engine.on_miss),
                ("WARMSTACK_HANG_SECONDS", str(spec.engine.hang_seconds)),
                ("WARMSTACK_NURSERY", "on" if spec.engine.nursery else "off"),
                *common_variables(spec),
                *engine_variables(spec),
            ),
            mounts=(Mount(kind="volume", source=compile_volume, target=CACHE, read_only=False),),
            probe="engine",
            path=model.path,
            ipc=self.place.ipc,
        )
        # What other projects on this host's GPUs have to leave to it.
        claim = () if spec.platform == "cpu" else (("warmstack.gpu-bytes", str(self.budget.engine_bytes)),)
        return replace(engine, labels=(*engine.labels, *claim, *spec.labels))

    def surge(self, compile_volume: str) -> Service:
        """A second engine: the first one's block under another name, with a compile cache of its own.

        vLLM 0.33 writes parts of that cache in place (compilation/backends.py, save_to_file) and names others
        by process id, which two containers share: so one engine writes one cache.
        """
        engine = replace(self.engine(compile_volume), name=SURGE)
        if self.budget.second != "standby":
            return replace(engine, profiles=(SURGE_PROFILE,))
        return replace(engine, environment=(*engine.environment, ("WARMSTACK_STANDBY", "on")))

    def _service(
        self,
        *,
        name: str,
        role: str,
        command: tuple[str, ...],
        environment: tuple[tuple[str, str], ...],
        mounts: tuple[Mount, ...],
        probe: str,
        path: str,
        ipc: str,
        shm_bytes: int | None = None,
    ) -> Service:
        spec, model = self.spec, self.model
        return Service(
            name=name,
            image=f"warmstack/{name}:{self.tag}",
            command=command,
            # Variables of docs/architecture.md that both sides get come first.
            environment=(
                ("WARMSTACK_IDENTITY", self.identity.value),
                ("WARMSTACK_MODEL_DIGEST", model.digest or UNLOCKED),
                ("WARMSTACK_MODEL_PATH", path),
                ("WARMSTACK_MODEL", model.name),
                ("WARMSTACK_PLATFORM", spec.platform),
                *environment,
            ),
            labels=(
                ("warmstack.identity", self.identity.value),
                ("warmstack.model", model.name),
                ("warmstack.role", role),
            ),
            mounts=(self.place.model_mount, self.place.sockets_mount, *mounts),
            networks=("backend",),
            health=Health(
                command=("warmstack-probe", probe),
                interval=10,
                timeout=_PROBE_SECONDS,
                retries=3,
                start_period=_LOAD_SECONDS,
            ),
            stop_seconds=30,
            gpus=None if spec.platform == "cpu" else Gpus(count=spec.gpu.count, devices=spec.gpu.devices),
            shm_bytes=shm_bytes,
            ipc=ipc,
        )


def _gateway(spec: Spec, pins: Pins) -> Service:
    return Service(
        name="gateway",
        image=f"warmstack/gateway:{pins.gateway}",
        command=(),
        environment=(
            ("WARMSTACK_HOLD", f"{spec.gateway.hold_seconds}s"),
            ("WARMSTACK_API_KEY", "required" if spec.gateway.api_key else "off"),
            # A name that only the backend network knows: nobody reaches the metrics from another one.
            ("WARMSTACK_METRICS", f"{GATEWAY_INSIDE}:{METRICS_PORT}"),
        ),
        labels=spec.labels,
        mounts=(Mount(kind="volume", source="gateway", target="/data", read_only=False),),
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


def _volumes(place: Place, compile_volumes: tuple[str, ...], *, chat: bool) -> tuple[Volume, ...]:
    own = (*compile_volumes, "gateway", *(("open-webui",) if chat else ()))
    shared = () if place.on_host else (Volume(name=HUB_VOLUME, external=True),)
    sockets = () if place.on_host else (Volume(name="sockets", external=False),)
    return (*shared, *sockets, *(Volume(name=name, external=False) for name in own))
