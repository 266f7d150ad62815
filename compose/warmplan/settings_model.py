"""Keys of environment.yaml: what is served, and how it is split.

Data only; `settings` puts the whole table together.
"""

from __future__ import annotations

from typing import Final

from warmplan.compatibility import MODES
from warmplan.keys import Key, Kind, Moves

MODEL_KEYS: Final = (
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
)
