"""vLLM's weight cache daemon with the weights in shared memory. Runs in each rank's process of `vllm
preload`.

In: what vLLM gives its `_run_daemon`. Out: a daemon that serves places in one segment.
Refuses to know: the supervisor. It deletes segments of its own socket only, and only under that socket's
lock.
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import torch
from vllm.logger import configure_logging, init_logger
from vllm.model_executor.model_loader.weight_cache import daemon, protocol

from warmstack_shared.segment_names import segments_of
from warmstack_shm.device import accelerator_answers
from warmstack_shm.entry import ShmTensorEntry
from warmstack_shm.linear import linear_layout, sharable_linear
from warmstack_shm.segment import Segment

logger = init_logger("vllm.warmstack_shm.daemon")

_stock_run_daemon = daemon._run_daemon


class ShmWeightCacheDaemon(daemon.WeightCacheDaemon):
    _lock: int | None = None

    def _acquire_gpu_lock(self, socket_path: str) -> int:
        # vLLM takes it when it begins to serve. Here it is taken before loading: a second daemon fails at
        # once, and every segment that is there already belongs to a daemon that is dead.
        if self._lock is None:
            self._lock = super()._acquire_gpu_lock(socket_path)
        assert self._lock is not None
        return self._lock

    def get_model(self) -> torch.nn.Module:
        socket_path = self._socket_path
        protocol.ensure_private_socket_dir(
            str(Path(socket_path).parent), strict_perms=self.socket_dir is None
        )
        self._acquire_gpu_lock(socket_path)
        for stale in segments_of(socket_path):
            logger.warning("Removing the segment of a dead daemon of this socket: %s", stale)
            stale.unlink()
        with sharable_linear():
            model: torch.nn.Module = super().get_model()
        started = time.perf_counter()
        segment = ShmTensorEntry.segment = Segment.of_model(model, socket_path)
        logger.info(
            "Weights moved to %s (%d bytes, layout %s, %.2f s)",
            segment.path,
            segment.bytes,
            linear_layout(),
            time.perf_counter() - started,
        )
        return model

    def _handle_release(self, conn: Any) -> None:
        _drop_segment()
        super()._handle_release(conn)


def run_daemon(*args: Any, **kwargs: Any) -> None:
    """Stands for vLLM's `_run_daemon` (0.32): the target of the process that `vllm preload` spawns for a
    rank.
    """
    from warmstack_shm.install import install

    install(daemon=True)  # vLLM loads general plugins in the parent only
    vllm_config, distributed_init_method = args[2], args[3]
    # CPUWorker sets it for its collectives in shared memory; the daemon has no worker. Needed for more than
    # one rank.
    os.environ["VLLM_DIST_IDENT"] = distributed_init_method.split(":")[-1]
    if logging_config := getattr(vllm_config, "logging_config", None):
        configure_logging(logging_config)  # vLLM 0.33 does it by itself
    setattr(daemon, "WeightCacheDaemon", ShmWeightCacheDaemon)  # noqa: B010  # a class can't be assigned, for mypy
    signal.signal(signal.SIGTERM, _exit)
    try:
        with accelerator_answers(_held_bytes):
            _stock_run_daemon(*args, **kwargs)
    finally:
        _drop_segment()


def _held_bytes() -> int:
    return ShmTensorEntry.segment.bytes if ShmTensorEntry.segment else 0


def _drop_segment() -> None:
    if ShmTensorEntry.segment:
        ShmTensorEntry.segment.unlink()
        ShmTensorEntry.segment = None


def _exit(*_: Any) -> NoReturn:
    """SIGTERM ends the process through its `finally` blocks, so that the segment goes too."""
    sys.exit(0)
