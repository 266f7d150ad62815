"""`warmstack-engine`: PID 1 of the engine's container. Keeps one `vllm serve` running and says what
happened.
"""
