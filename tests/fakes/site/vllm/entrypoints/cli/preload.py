"""The ranks of the fake `vllm preload`, made in the order in which vLLM 0.32 and 0.33 make theirs."""

from __future__ import annotations

import json
import multiprocessing
import threading
from typing import Any

there: dict[str, Any] = {"inherited": False, "health": False}


def _rank(ready: multiprocessing.Queue[dict[str, Any]]) -> None:
    ready.put({**there, "threads": threading.active_count()})


def show_rank() -> int:
    """One rank; prints what it found in its process; `health`: that thread had begun when it was forked.

    The rank's exit code.
    """
    there["inherited"] = True
    context = multiprocessing.get_context("spawn")
    ready: multiprocessing.Queue[dict[str, Any]] = context.Queue()
    rank = context.Process(target=_rank, args=(ready,), name="vllm-weight-cache-main-0")
    over = threading.Event()
    there["health"] = True
    threading.Thread(target=over.wait).start()
    rank.start()
    try:
        print(f"rank: {json.dumps(ready.get(timeout=30))}", flush=True)
        rank.join()
    finally:
        over.set()
    return rank.exitcode or 0
