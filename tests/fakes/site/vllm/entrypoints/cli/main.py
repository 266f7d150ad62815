"""The command line of the fake vLLM: the fake `vllm` command, run in this process."""

from __future__ import annotations

import runpy
from pathlib import Path


def main() -> int:
    command = runpy.run_path(str(Path(__file__).parents[4] / "vllm.py"))
    return int(command["main"]())
