"""The command lines of `vllm preload` and `vllm serve`, and the variables both containers share.

In: spec, identity, budget, the model's folder. Out: tuples of words and of (name, value) pairs. What both
sides must agree on is written by one function for both, so that they cannot differ.
"""

from __future__ import annotations

from typing import Final

from warmplan.budget import Budget
from warmplan.document import Json
from warmplan.flags import FLAGS, Scope, compact_json, variable_scope, words
from warmplan.identity import Identity, shared_arguments, shared_variables
from warmplan.placement import CACHE, SOCKETS, Place
from warmplan.spec import Spec

ENGINE_PORT: Final = 8000
# The gateway and our own probes ask these several times a second: a line each would turn the evidence of the
# last start out of a container's log within days.
UNLOGGED_PATHS: Final = ("/health", "/metrics")

Pairs = tuple[tuple[str, str], ...]


def socket_folder(identity: Identity, sockets: str = SOCKETS) -> str:
    """The folder of the weight cache's sockets: another identity finds no socket there."""
    return f"{sockets}/{identity.short}"


def preload_command(*, spec: Spec, identity: Identity, place: Place, revision: str) -> tuple[str, ...]:
    """The arguments of `vllm preload`."""
    return (
        f"--model={place.model_path}",
        *_both(spec, revision),
        *_words(spec.weight_cache.arguments),
        f"--weight-cache-socket-dir={socket_folder(identity, place.sockets)}",
        f"--weight-cache-health-port={place.health_port}",
        # Nobody but the supervisor beside it asks it.
        "--weight-cache-health-host=127.0.0.1",
    )


def serve_command(
    *, spec: Spec, identity: Identity, budget: Budget, path: str, revision: str
) -> tuple[str, ...]:
    """The arguments of `vllm serve`. The model is positional: vLLM refuses `--model` there."""
    loader: Json = {
        "socket_dir": socket_folder(identity),
        "fallback": spec.engine.on_miss == "disk",
        "state_timeout_s": spec.engine.wait_seconds,
    }
    return (
        path,
        f"--served-model-name={spec.model.served_name}",
        *_both(spec, revision),
        "--load-format=ipc_cache",
        f"--model-loader-extra-config={compact_json(loader)}",
        *_sizes(spec, budget),
        f"--disable-access-log-for-endpoints={','.join(UNLOGGED_PATHS)}",
        *_words(tuple(pair for pair in spec.engine.arguments if FLAGS[pair[0]].scope is Scope.ENGINE)),
        "--host=0.0.0.0",
        f"--port={ENGINE_PORT}",
    )


def _both(spec: Spec, revision: str) -> tuple[str, ...]:
    """What decides the weights, and so stands in both commands."""
    quantization = (f"--quantization={spec.model.quantization}",) if spec.model.quantization else ()
    trust = ("--trust-remote-code",) if spec.model.trust_remote_code else ()
    # The compile cache never loads on the CPU, so compiling would be paid at every start.
    eager = ("--enforce-eager",) if spec.platform == "cpu" else ()
    return (
        f"--revision={revision}",
        f"--dtype={spec.model.dtype}",
        f"--tensor-parallel-size={spec.tensor}",
        *quantization,
        *trust,
        *eager,
        *_words(shared_arguments(spec)),
    )


def _sizes(spec: Spec, budget: Budget) -> tuple[str, ...]:
    length = spec.engine.max_model_len
    count = spec.engine.max_num_seqs
    return (
        *((f"--max-model-len={length}",) if length is not None else ()),
        *((f"--max-num-seqs={count}",) if count is not None else ()),
        f"--kv-cache-memory-bytes={budget.kv_cache_bytes}",
        *((f"--gpu-memory-utilization={budget.utilization:.4f}",) if budget.utilization is not None else ()),
    )


def _words(arguments: tuple[tuple[str, Json], ...]) -> tuple[str, ...]:
    return tuple(word for name, value in arguments for word in words(FLAGS[name], value))


def common_variables(spec: Spec, cache: str = CACHE) -> Pairs:
    """Variables that engine and weight cache share; `cache` is the folder for what vLLM computes.

    Nothing that varies from start to start may be named `VLLM_…`: those enter the key of the compile cache.
    """
    return (
        ("HOME", "/tmp"),
        ("HF_HOME", "/tmp/huggingface"),
        ("HF_HUB_OFFLINE", "1"),
        ("TRANSFORMERS_OFFLINE", "1"),
        ("VLLM_CACHE_ROOT", f"{cache}/vllm"),
        ("TORCHINDUCTOR_CACHE_DIR", f"{cache}/inductor"),
        ("TRITON_CACHE_DIR", f"{cache}/triton"),
        ("FLASHINFER_WORKSPACE_BASE", cache),
        ("VLLM_NO_USAGE_STATS", "1"),
        *shared_variables(spec),
    )


def engine_variables(spec: Spec) -> Pairs:
    """Variables of the engine alone."""
    # The engine's processes are forked from the API server, which has imported vLLM already; vLLM's own
    # choice imports everything once more in each (54 s instead of 18 s for two ranks on two H200 with an 8B
    # shape).
    forked = (("VLLM_WORKER_MULTIPROC_METHOD", "fork"),) if may_fork(spec) else ()
    # vLLM's CPU platform otherwise gives a single worker a process of its own. Several ranks need them.
    single = (("VLLM_ENABLE_V1_MULTIPROCESSING", "0"),) if spec.platform == "cpu" and spec.tensor == 1 else ()
    own = tuple(pair for pair in spec.engine.environment if variable_scope(pair[0]) is Scope.ENGINE)
    # The gateway and Open WebUI keep connections for longer than vLLM's 5 s, and would send into a closed
    # one.
    # What the environment file says wins.
    return tuple(dict((("VLLM_HTTP_TIMEOUT_KEEP_ALIVE", "75"), *single, *forked, *own)).items())


def may_fork(spec: Spec) -> bool:
    """Whether processes of vLLM may be forked. Several ranks on the CPU were not tried with it."""
    return spec.tensor == 1 or spec.platform == "cuda"
