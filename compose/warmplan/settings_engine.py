"""Keys of environment.yaml: the engine and the weight cache.

Data only; `settings` puts the whole table together.
"""

from __future__ import annotations

from typing import Final

from warmplan.keys import Key, Kind, Moves

_LAST_PORT: Final = 65535
_DAY: Final = 86400

ENGINE_KEYS: Final = (
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
        doc="How long a roll waits for the running requests of an engine; those that run longer are cut. "
        "A restart waits too, at most half of `gateway.hold_seconds`: new requests are held meanwhile.",
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
        default=True,
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
        name="weight_cache.fork_ranks",
        kind=Kind.BOOLEAN,
        default=True,
        moves=Moves.YES,
        doc="Fork the ranks of `vllm preload`, and its look at the model; vLLM starts Python anew for each.",
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
)
