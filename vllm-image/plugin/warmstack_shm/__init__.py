"""vLLM plugin: Fast Start on the CPU platform, with the weights in shared memory instead of CUDA IPC.

In: nothing but vLLM's call of `register` (entry point `vllm.general_plugins`), once in every vLLM process.
Out: on the CPU platform, vLLM's weight cache daemon and loader with the hooks of `hooks.HOOKS` replaced.
Refuses to know: warmstack's other parts. vLLM's command line, socket protocol, lock, key and waiting stay
vLLM's.
"""


def register() -> None:
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        from warmstack_shm.install import install

        install()
