"""Samples for the tests of the images' own code: a tiny model folder, a status of the supervisor."""

import json
import struct
from pathlib import Path
from typing import Any

from warmstack_supervisor.states import State
from warmstack_supervisor.status import Status


def tensors(*spans: tuple[int, int]) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    for number, (start, end) in enumerate(spans):
        header[f"t{number}"] = {"dtype": "U8", "shape": [end - start], "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(max(end for _, end in spans))


def make_model(folder: Path, weights: bytes = tensors((0, 8), (8, 20))) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_bytes(weights)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "tokenizer.json").write_text("{}")
    return folder


def make_status(**changes: object) -> Status:
    fields: dict[str, object] = {
        "state": State.HELD,
        "since": "2026-11-29T12:00:00Z",
        "model": "Org/Name",
        "identity": "a" * 64,
        "model_digest": "b" * 64,
        "files": "c" * 64,
        "bytes_held": 269060552,
        "rank_pids": (412,),
        "highest_pid": 431,
        "restarts": 0,
        "reason": None,
        "last_error": None,
        "vllm_version": "0.32.0",
        "load_seconds": 11.2,
        "degraded": False,
        "confirmed_at": 100.0,
    }
    return Status(**(fields | changes))  # type: ignore[arg-type]
