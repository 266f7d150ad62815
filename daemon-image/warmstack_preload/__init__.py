"""`vllm preload` with ranks that are forked: the supervisor's child, the one package here that runs vLLM."""
