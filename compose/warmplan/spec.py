"""From what was written to a wish that can be trusted: every value typed, checked, and with its origin.

In: an environment and overrides. Out: `Spec`. All problems are reported at once. After this module nobody
sees a raw string. It does not know the host, the lock, or what a wish costs in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warmplan.addresses import reachable
from warmplan.compatibility import refuse_mode, refuse_quantisation
from warmplan.document import Json
from warmplan.environment import Environment
from warmplan.errors import UserError
from warmplan.names import project_name
from warmplan.spec_checks import check_together
from warmplan.spec_values import KV_CACHE_KEYS, Override, Values, gather

__all__ = ["Override", "Setting", "Spec", "build_spec"]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One effective setting: its key, its value as JSON, its origin (`environment.yaml:12`, `default`, …)."""

    key: str
    value: Json
    origin: str


@dataclass(frozen=True, kw_only=True)
class ModelWish:
    """The model: a hub name with a revision, or an absolute folder of the host."""

    name: str
    revision: str
    served_name: str
    dtype: str
    quantization: str | None
    trust_remote_code: bool
    weight_gib: float | None
    kv_bytes_per_token: int | None
    temperature: float | None
    offline: bool
    hub_endpoint: str | None

    @property
    def is_local(self) -> bool:
        return self.name.startswith("/")


@dataclass(frozen=True, kw_only=True)
class EngineWish:
    """The engine. Exactly one of the three sizes of the KV cache is set; GiB and tokens are for one rank.

    `roll` None: where a second engine fits.
    """

    max_model_len: int | None
    max_num_seqs: int | None
    kv_cache_gib: float | None
    kv_cache_tokens: int | None
    kv_cache_concurrency: float | None
    roll: bool | None
    standby: bool
    drain_seconds: int
    on_miss: str
    wait_seconds: int
    hang_seconds: int
    max_restarts: int
    nursery: bool
    arguments: tuple[tuple[str, Json], ...]
    environment: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class WeightCacheWish:
    """What concerns the weight cache alone; `port` counts on the host only."""

    on_host: bool
    port: int
    max_restarts: int
    fork_ranks: bool
    arguments: tuple[tuple[str, Json], ...]
    environment: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class GatewayWish:
    """The published API."""

    host: str
    port: int
    hold_seconds: int
    api_key: bool


@dataclass(frozen=True, kw_only=True)
class OpenWebuiWish:
    """The chat page."""

    enabled: bool
    host: str
    port: int
    url: str
    admin_email: str
    environment: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class GpuWish:
    """GPUs; `memory_gib` is None on the CPU platform."""

    count: int
    devices: tuple[str, ...]
    memory_gib: float | None
    headroom_gib: float
    architecture: str


@dataclass(frozen=True, kw_only=True)
class Spec:
    """The validated wish. `settings` lists every effective setting in the order of the table of keys."""

    environment: str
    platform: str
    project: str
    labels: tuple[tuple[str, str], ...]
    model: ModelWish
    tensor: int
    engine: EngineWish
    weight_cache: WeightCacheWish
    gateway: GatewayWish
    open_webui: OpenWebuiWish
    gpu: GpuWish
    settings: tuple[Setting, ...]

    @property
    def restart_drain_seconds(self) -> int:
        """How long a restart waits for running requests. New ones are held meanwhile, so half of the hold is
        left for the start of the engine.
        """
        return min(self.engine.drain_seconds, self.gateway.hold_seconds // 2)


DEFAULT_KV_CACHE_GIB = {"cpu": 0.25, "cuda": 8.0}


def build_spec(*, environment: Environment, overrides: Sequence[Override] = ()) -> Spec:
    """Judge an environment and the overrides that win over it (the last one of a key wins).

    Errors: `UserError` (exit code 2) with every problem found: unknown keys, wrong types, contradictions.
    """
    values = gather(environment.document, overrides)
    _derive(values, environment.name)
    _refuse_incompatible(values)
    check_together(values)
    if values.problems:
        raise UserError(values.problems)
    return _spec(values, environment.name)


def _derive(values: Values, environment: str) -> None:
    """Fill in the defaults that depend on other keys."""
    values.default("project", f"warmstack-{environment}")
    if values.has("model.name"):
        name = values.text("model.name")
        last = name.rstrip("/").rsplit("/", 1)[-1]
        values.default("model.served_name", last if name.startswith("/") else name)
    if values.has("open_webui.host") and values.has("open_webui.port"):
        address = reachable(values.text("open_webui.host"))
        values.default("open_webui.url", f"http://{address}:{values.integer('open_webui.port')}")
    if values.has("parallel.tensor"):
        values.default("gpu.count", values.integer("parallel.tensor"))
    if values.has("platform") and not any(values.was_given(key) for key in KV_CACHE_KEYS):
        values.default("engine.kv_cache.gib", DEFAULT_KV_CACHE_GIB[values.text("platform")])


def _refuse_incompatible(values: Values) -> None:
    sentence = refuse_mode(values.text("mode")) if values.has("mode") else None
    if sentence is not None:
        values.add("mode", sentence, "remove the line, or use mode: fast-start")
    if values.has("platform", "model.quantization"):
        method, platform = values.text("model.quantization"), values.text("platform")
        refused = refuse_quantisation(method, platform=platform)
        if refused is not None:
            values.add("model.quantization", *refused)


def _spec(values: Values, environment: str) -> Spec:
    settings = tuple(
        Setting(key=key, value=found.value, origin=found.origin) for key, found in values.in_order()
    )
    return Spec(
        environment=environment,
        platform=values.text("platform"),
        project=project_name(values.text("project")),
        labels=values.pairs("labels"),
        model=ModelWish(
            name=values.text("model.name"),
            revision=values.text("model.revision"),
            served_name=values.text("model.served_name"),
            dtype=values.text("model.dtype"),
            quantization=values.optional_text("model.quantization"),
            trust_remote_code=values.boolean("model.trust_remote_code"),
            weight_gib=values.optional_number("model.weight_gib"),
            kv_bytes_per_token=values.optional_integer("model.kv_bytes_per_token"),
            temperature=values.optional_number("model.temperature"),
            offline=values.boolean("model.offline"),
            hub_endpoint=values.optional_text("model.hub_endpoint"),
        ),
        tensor=values.integer("parallel.tensor"),
        engine=_engine(values),
        weight_cache=WeightCacheWish(
            on_host=values.text("weight_cache.placement") == "host",
            port=values.integer("weight_cache.port"),
            max_restarts=values.integer("weight_cache.max_restarts"),
            fork_ranks=values.boolean("weight_cache.fork_ranks"),
            arguments=values.table("weight_cache.arguments"),
            environment=values.pairs("weight_cache.environment"),
        ),
        gateway=GatewayWish(
            host=values.text("gateway.host"),
            port=values.integer("gateway.port"),
            hold_seconds=values.integer("gateway.hold_seconds"),
            api_key=values.boolean("gateway.api_key"),
        ),
        open_webui=OpenWebuiWish(
            enabled=values.boolean("open_webui.enabled"),
            host=values.text("open_webui.host"),
            port=values.integer("open_webui.port"),
            url=values.text("open_webui.url"),
            admin_email=values.text("open_webui.admin_email"),
            environment=values.pairs("open_webui.environment"),
        ),
        gpu=GpuWish(
            count=values.integer("gpu.count"),
            devices=values.texts("gpu.devices"),
            memory_gib=values.optional_number("gpu.memory_gib"),
            headroom_gib=values.number("gpu.headroom_gib"),
            architecture=values.text("gpu.architecture"),
        ),
        settings=settings,
    )


def _engine(values: Values) -> EngineWish:
    return EngineWish(
        max_model_len=values.optional_integer("engine.max_model_len"),
        max_num_seqs=values.optional_integer("engine.max_num_seqs"),
        kv_cache_gib=values.optional_number("engine.kv_cache.gib"),
        kv_cache_tokens=values.optional_integer("engine.kv_cache.tokens"),
        kv_cache_concurrency=values.optional_number("engine.kv_cache.concurrency"),
        roll=values.boolean("engine.roll") if values.has("engine.roll") else None,
        standby=values.boolean("engine.standby"),
        drain_seconds=values.integer("engine.drain_seconds"),
        on_miss=values.text("engine.on_miss"),
        wait_seconds=values.integer("engine.wait_seconds"),
        hang_seconds=values.integer("engine.hang_seconds"),
        max_restarts=values.integer("engine.max_restarts"),
        nursery=values.boolean("engine.nursery"),
        arguments=values.table("engine.arguments"),
        environment=values.pairs("engine.environment"),
    )
