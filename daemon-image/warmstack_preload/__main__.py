"""Command line: `python3 -m warmstack_preload [--spawn-ranks] …`, the rest as for `vllm preload`."""

import importlib
import sys
from typing import NoReturn

from warmstack_preload.ranks import fork_ranks
from warmstack_shared.inspection import inspect_in_child

SPAWN = "--spawn-ranks"


def main(arguments: list[str]) -> NoReturn:
    given = [argument for argument in arguments if argument != SPAWN]
    sys.argv = ["vllm", "preload", *given]  # vLLM and its plugins look there
    command = importlib.import_module("vllm.entrypoints.cli.main").main
    if given == arguments:
        inspect_in_child(importlib.import_module("vllm.model_executor.models.registry"))
        fork_ranks(importlib.import_module("vllm.entrypoints.cli.preload"))
    sys.exit(command())


if __name__ == "__main__":
    main(sys.argv[1:])
