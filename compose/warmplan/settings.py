"""Every key of environment.yaml: form, default, meaning, and whether a change moves the weight cache.

Data only; `spec` reads values by it, `render_reference` writes docs/environment.md from it, and a test
renders two plans for every line to see that `moves` is true.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from warmplan.compatibility import MODES


class Kind(Enum):
    """What a value must look like; the value is what the documentation calls it."""

    TEXT = "text"
    INTEGER = "whole number"
    NUMBER = "number"
    BOOLEAN = "true or false"
    CHOICE = "one of"
    TEXTS = "list of text"
    ARGUMENTS = "table of vLLM flags"
    VARIABLES = "table of variables"
    LABELS = "table of labels"


class Moves(Enum):
    """Whether changing the key changes the weight-cache service, which drops the weights."""

    YES = "yes"
    NO = "no"
    BY_FLAG = "for flags and variables that decide the weights"


Default = str | int | float | bool | None


@dataclass(frozen=True, kw_only=True)
class Key:
    """One key. `default` None: see `default_text`, or required when that is empty too.

    `of_model`: says something about the model that stands beside it, so another one from the command line
    leaves it out.
    """

    name: str
    kind: Kind
    moves: Moves
    doc: str
    default: Default = None
    default_text: str = ""
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    of_model: bool = False

    @property
    def required(self) -> bool:
        return self.default is None and not self.default_text

    @property
    def is_table(self) -> bool:
        return self.kind in (Kind.ARGUMENTS, Kind.VARIABLES, Kind.LABELS)


_LAST_PORT: Final = 65535
_DAY: Final = 86400

KEYS: Final = (
    Key(
        name="platform",
        kind=Kind.CHOICE,
        choices=("cpu", "cuda"),
        moves=Moves.YES,
        doc="`cuda` keeps the weights in GPU memory, `cpu` in shared memory.",
    ),
    Key(
        name="mode",
        kind=Kind.CHOICE,
        choices=MODES,
        default="fast-start",
        moves=Moves.NO,
        doc="How engines start. `sleep` and `snapshot` are known and refused: they exclude the weight cache.",
    ),
    Key(
        name="project",
        kind=Kind.TEXT,
        default_text="`warmstack-` and the environment's name",
        moves=Moves.NO,
        doc="Name of the Compose project; what Compose does not accept becomes a readable slug with a hash.",
    ),
    Key(
        name="labels",
        kind=Kind.LABELS,
        default_text="none",
        moves=Moves.NO,
        doc="Labels on vllm, gateway and open-webui. The weight cache has none: they would drop its weights.",
    ),
    Key(
        name="model.name",
        kind=Kind.TEXT,
        moves=Moves.YES,
        doc="`Org/Name` on the hub, or the absolute path of a folder on the host with safetensors files.",
    ),
    Key(
        name="model.revision",
        kind=Kind.TEXT,
        default="main",
        moves=Moves.YES,
        of_model=True,
        doc="Branch, tag or commit on the hub. What it meant when it was resolved stands in lock.yaml.",
    ),
    Key(
        name="model.served_name",
        kind=Kind.TEXT,
        default_text="the model's name",
        moves=Moves.NO,
        doc="The name that clients use.",
    ),
    Key(
        name="model.dtype",
        kind=Kind.CHOICE,
        choices=("auto", "bfloat16", "float16", "float32"),
        default="auto",
        moves=Moves.YES,
        doc="Number format of the weights.",
    ),
    Key(
        name="model.quantization",
        kind=Kind.TEXT,
        default_text="what the checkpoint says",
        moves=Moves.YES,
        doc="vLLM's `--quantization`; `fp8` works, AWQ, GPTQ and compressed-tensors are refused.",
    ),
    Key(
        name="model.trust_remote_code",
        kind=Kind.BOOLEAN,
        default=False,
        moves=Moves.YES,
        doc="Run the Python code that comes with the checkpoint.",
    ),
    Key(
        name="model.weight_gib",
        kind=Kind.NUMBER,
        minimum=0.001,
        default_text="computed",
        moves=Moves.YES,
        of_model=True,
        doc="GiB of weights that one rank holds, tables included, where the plan cannot compute them.",
    ),
    Key(
        name="model.kv_bytes_per_token",
        kind=Kind.INTEGER,
        minimum=1,
        default_text="computed",
        moves=Moves.NO,
        of_model=True,
        doc="Bytes of KV cache that one token takes on one rank, for attention that the plan does not know.",
    ),
    Key(
        name="model.temperature",
        kind=Kind.NUMBER,
        default_text="the engine's own",
        minimum=0,
        maximum=2,
        moves=Moves.NO,
        of_model=True,
        doc="Temperature that a chat begins with. API clients send their own.",
    ),
    Key(
        name="model.offline",
        kind=Kind.BOOLEAN,
        default=False,
        moves=Moves.NO,
        doc="Ask no hub: the newest snapshot on disk counts, and without one nothing is brought up.",
    ),
    Key(
        name="model.hub_endpoint",
        kind=Kind.TEXT,
        default_text="`HF_ENDPOINT`, else the client's own",
        moves=Moves.NO,
        doc="Address of a mirror that speaks the hub's API. What it sends is checked: the content decides.",
    ),
    Key(
        name="parallel.tensor",
        kind=Kind.INTEGER,
        default=1,
        minimum=1,
        maximum=64,
        moves=Moves.YES,
        doc="Number of ranks that the weights are split over; on `cuda` one GPU each.",
    ),
    Key(
        name="engine.max_model_len",
        kind=Kind.INTEGER,
        minimum=1,
        default_text="the model's own",
        moves=Moves.NO,
        doc="Longest request, prompt and answer, in tokens.",
    ),
    Key(
        name="engine.max_num_seqs",
        kind=Kind.INTEGER,
        minimum=1,
        default_text="vLLM's own",
        moves=Moves.NO,
        doc="Most requests that run at the same time.",
    ),
    Key(
        name="engine.kv_cache.gib",
        kind=Kind.NUMBER,
        minimum=0.001,
        default_text="0.25 on `cpu`, 8 on `cuda`",
        moves=Moves.NO,
        doc="KV cache of one rank in GiB. Give this, `tokens` or `concurrency`.",
    ),
    Key(
        name="engine.kv_cache.tokens",
        kind=Kind.INTEGER,
        minimum=1,
        default_text="not used",
        moves=Moves.NO,
        doc="KV cache in tokens of requests of full length.",
    ),
    Key(
        name="engine.kv_cache.concurrency",
        kind=Kind.NUMBER,
        minimum=1,
        default_text="not used",
        moves=Moves.NO,
        doc="KV cache for so many requests of full length at the same time.",
    ),
    Key(
        name="engine.roll",
        kind=Kind.BOOLEAN,
        default_text="true where a second engine fits",
        moves=Moves.NO,
        doc="Whether a second engine may run beside the first while it replaces it; `true` must fit.",
    ),
    Key(
        name="engine.standby",
        kind=Kind.BOOLEAN,
        default=False,
        moves=Moves.NO,
        doc="Whether a second engine always runs on the same weights, ready to take over at once.",
    ),
    Key(
        name="engine.drain_seconds",
        kind=Kind.INTEGER,
        default=300,
        minimum=0,
        maximum=_DAY,
        moves=Moves.NO,
        doc="How long a roll waits for the running requests of an engine; those that run longer are cut.",
    ),
    Key(
        name="engine.on_miss",
        kind=Kind.CHOICE,
        choices=("refuse", "disk"),
        default="refuse",
        moves=Moves.NO,
        doc="What an engine does that cannot map the weights: say so and stop, or load a copy from disk.",
    ),
    Key(
        name="engine.wait_seconds",
        kind=Kind.INTEGER,
        default=1800,
        minimum=1,
        maximum=_DAY,
        moves=Moves.NO,
        doc="Longest wait of one engine start for the weight cache; not below the longest load.",
    ),
    Key(
        name="engine.hang_seconds",
        kind=Kind.INTEGER,
        default=300,
        minimum=0,
        maximum=_DAY,
        moves=Moves.NO,
        doc="An engine with running requests that makes no token for so long counts as dead; 0 is off.",
    ),
    Key(
        name="engine.max_restarts",
        kind=Kind.INTEGER,
        default=5,
        minimum=1,
        maximum=100,
        moves=Moves.NO,
        doc="Starts in a row that never became ready, before the engine's container gives up and says why.",
    ),
    Key(
        name="engine.nursery",
        kind=Kind.BOOLEAN,
        default=False,
        moves=Moves.NO,
        doc="Keep a process with vLLM imported in the engine's container, from which engines are forked.",
    ),
    Key(
        name="engine.arguments",
        kind=Kind.ARGUMENTS,
        default_text="none",
        moves=Moves.BY_FLAG,
        doc="More flags of `vllm serve`. Those that decide the weights go to the weight cache too.",
    ),
    Key(
        name="engine.environment",
        kind=Kind.VARIABLES,
        default_text="none",
        moves=Moves.BY_FLAG,
        doc="More variables for the engine. Those that choose a weight layout go to the weight cache too.",
    ),
    Key(
        name="weight_cache.placement",
        kind=Kind.CHOICE,
        choices=("container", "host"),
        default="container",
        moves=Moves.YES,
        doc="`host`: a process of the host, by the systemd unit `weight-cache.service`; see docs/host.md.",
    ),
    Key(
        name="weight_cache.port",
        kind=Kind.INTEGER,
        default=8900,
        minimum=1,
        maximum=_LAST_PORT - 1,
        moves=Moves.YES,
        doc="Port of its status and metrics on 127.0.0.1, the next one is vLLM's (placement `host` only).",
    ),
    Key(
        name="weight_cache.max_restarts",
        kind=Kind.INTEGER,
        default=5,
        minimum=1,
        maximum=100,
        moves=Moves.YES,
        doc="Loads in a row that failed, before the weight cache gives up and says why.",
    ),
    Key(
        name="weight_cache.arguments",
        kind=Kind.ARGUMENTS,
        default_text="none",
        moves=Moves.YES,
        doc="Flags for reading the checkpoint, which the weight cache does (`safetensors-load-strategy`).",
    ),
    Key(
        name="weight_cache.environment",
        kind=Kind.VARIABLES,
        default_text="none",
        moves=Moves.YES,
        doc="Variables for the weight cache alone.",
    ),
    Key(
        name="gateway.host",
        kind=Kind.TEXT,
        default="127.0.0.1",
        moves=Moves.NO,
        doc="Address where the API is published; one that others reach needs `gateway.api_key: true`.",
    ),
    Key(
        name="gateway.port",
        kind=Kind.INTEGER,
        default=8000,
        minimum=1,
        maximum=_LAST_PORT,
        moves=Moves.NO,
        doc="Port of the API.",
    ),
    Key(
        name="gateway.hold_seconds",
        kind=Kind.INTEGER,
        default=120,
        minimum=0,
        maximum=_DAY,
        moves=Moves.NO,
        doc="How long a request is held while no engine is ready.",
    ),
    Key(
        name="gateway.api_key",
        kind=Kind.BOOLEAN,
        default=False,
        moves=Moves.NO,
        doc="Whether `/v1` needs the key in the project's secret `api_key`.",
    ),
    Key(
        name="open_webui.enabled",
        kind=Kind.BOOLEAN,
        default=True,
        moves=Moves.NO,
        doc="Whether the stack has a chat page.",
    ),
    Key(
        name="open_webui.host",
        kind=Kind.TEXT,
        default="127.0.0.1",
        moves=Moves.NO,
        doc="Address where the chat page is published; one that others reach needs `open_webui.url`.",
    ),
    Key(
        name="open_webui.port",
        kind=Kind.INTEGER,
        default=3000,
        minimum=1,
        maximum=_LAST_PORT,
        moves=Moves.NO,
        doc="Port of the chat page.",
    ),
    Key(
        name="open_webui.url",
        kind=Kind.TEXT,
        default_text="`http://localhost:` and the port",
        moves=Moves.NO,
        doc="Address of the chat page as browsers see it; other origins are refused.",
    ),
    Key(
        name="open_webui.admin_email",
        kind=Kind.TEXT,
        default="admin@warmstack.local",
        moves=Moves.NO,
        doc="Login of the first administrator; the password is the project's secret `webui_admin_password`.",
    ),
    Key(
        name="open_webui.environment",
        kind=Kind.VARIABLES,
        default_text="none",
        moves=Moves.NO,
        doc="More variables for Open WebUI; they win over the plan's own.",
    ),
    Key(
        name="gpu.count",
        kind=Kind.INTEGER,
        default_text="`parallel.tensor`",
        minimum=1,
        maximum=64,
        moves=Moves.YES,
        doc="GPUs that both containers get (`cuda` only).",
    ),
    Key(
        name="gpu.devices",
        kind=Kind.TEXTS,
        default_text="the first `gpu.count`",
        moves=Moves.YES,
        doc="UUIDs of the GPUs (`GPU-…`), for hosts with more than are meant.",
    ),
    Key(
        name="gpu.memory_gib",
        kind=Kind.NUMBER,
        default_text="required on `cuda`",
        minimum=1,
        moves=Moves.NO,
        doc="Memory of one GPU in GiB, so that a laptop can plan for a server.",
    ),
    Key(
        name="gpu.headroom_gib",
        kind=Kind.NUMBER,
        default=0.5,
        minimum=0,
        moves=Moves.NO,
        doc="Memory of one GPU in GiB that the plan leaves free (`cuda` only).",
    ),
    Key(
        name="gpu.architecture",
        kind=Kind.TEXT,
        default="any",
        moves=Moves.NO,
        doc="For instance `sm90`; part of the name of the volume with compiled kernels.",
    ),
)


def find_key(name: str) -> Key | None:
    """The key of that name."""
    return next((key for key in KEYS if key.name == name), None)
