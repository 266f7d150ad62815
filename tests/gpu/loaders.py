"""How fast vLLM's ways to read safetensors fill a GPU: what a cold start of the weight cache waits for.

    python3 -m gpu.loaders MODEL [LOADER…] --out FILE     each once from disk and once from the page cache

In: a folder with safetensors, a GPU with room for them. Out: one JSON object for each load: seconds from
the first byte asked for to the last tensor on the GPU, bytes, and a sum over the content, equal for all.
Each loader has a process of its own; imports and CUDA's context are not counted. A loader that is not
installed or fails says so in its row.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

LOADERS = ("safetensors", "multi-thread", "runai", "fastsafetensors", "instanttensor")
THREADS = 8
LIMIT_SECONDS = 120
DROP_CACHES = Path("/proc/sys/vm/drop_caches")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, help="folder with *.safetensors")
    parser.add_argument("--out", type=Path, help="JSON file for the rows; default: stdout alone")
    parser.add_argument("loaders", nargs="*", default=LOADERS, help=f"some of {', '.join(LOADERS)}")
    parser.add_argument("--one", choices=LOADERS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    files = sorted(str(path) for path in arguments.model.glob("*.safetensors"))
    if not files:
        raise SystemExit(f"{arguments.model}: no safetensors in it")
    if arguments.one:
        for page_cache in ("dropped", "warm"):
            if page_cache == "dropped":
                subprocess.run(["sync"], check=True)
                DROP_CACHES.write_text("3")
            print(json.dumps({"page_cache": page_cache, **load_once(arguments.one, files)}), flush=True)
        return
    rows = []
    for loader in arguments.loaders:
        for row in load_apart(loader, arguments.model):
            rows.append({"loader": loader, **row})
            print(json.dumps(rows[-1]), flush=True)
        if arguments.out:
            arguments.out.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


def load_apart(loader: str, model: Path) -> list[dict[str, Any]]:
    """Its loads in a process of its own; what that says, or the last line of its complaint."""
    command = [sys.executable, "-m", "gpu.loaders", str(model), "--one", loader]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return [{"error": f"not done within {LIMIT_SECONDS} s"}]
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0:
        rows.append({"error": (done.stderr.strip().splitlines() or ["no word"])[-1][:300]})
    return rows


def load_once(loader: str, files: list[str]) -> dict[str, Any]:
    """Fill the GPU by one loader and keep everything, as a model does."""
    import torch

    iterate = iterator_of(loader)
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    kept = {}
    begun = time.monotonic()
    for name, tensor in iterate(files):
        kept[name] = tensor if tensor.is_cuda else tensor.to("cuda")
    torch.cuda.synchronize()
    seconds = time.monotonic() - begun
    total = sum(float(tensor.double().abs().sum()) for _, tensor in sorted(kept.items()))
    count = len(kept)
    size = sum(tensor.numel() * tensor.element_size() for tensor in kept.values())
    return {
        "seconds": round(seconds, 3),
        "bytes": size,
        "gib_per_second": round(size / seconds / 2**30, 2),
        "tensors": count,
        "content": total,
    }


def iterator_of(loader: str) -> Callable[[list[str]], Iterator[tuple[str, Any]]]:
    """vLLM's own function for it. Import errors say what is not installed."""
    from vllm.model_executor.model_loader import weight_utils as own

    if loader == "multi-thread":
        return lambda files: own.multi_thread_safetensors_weights_iterator(
            files, use_tqdm_on_load=False, max_workers=THREADS
        )
    names = {
        "safetensors": "safetensors_weights_iterator",
        "runai": "runai_safetensors_weights_iterator",
        "fastsafetensors": "fastsafetensors_weights_iterator",
        "instanttensor": "instanttensor_weights_iterator",
    }
    function: Callable[..., Iterator[tuple[str, Any]]] = getattr(own, names[loader])
    return lambda files: function(files, use_tqdm_on_load=False)


if __name__ == "__main__":
    main()
