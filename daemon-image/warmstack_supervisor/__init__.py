"""`warmstack-supervisor`: PID 1 of the weight cache's container. Keeps `vllm preload` holding the weights."""
