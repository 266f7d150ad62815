"""Forks of this process, and whether a child could still do what its parent can.

In: this process. Out: why it must not be forked; a child, or its answer. Refuses to know: what for.

A forked child can't use CUDA that its parent has initialised, and has none of its parent's threads.
"""

import contextlib
import ctypes
import os
import pickle
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from typing import Any, TypeVar, cast

Result = TypeVar("Result")
_NOT_INITIALISED = 3  # CUDA_ERROR_NOT_INITIALIZED of the driver API


def why_unfit(*, thorough: bool = False) -> str | None:
    """Why this process must not be forked; None when it may. `thorough`: ask a forked child, 20 ms."""
    others = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    if others:
        return f"there are threads: {', '.join(others)}"
    if _has_children():
        return "there is a child process"
    if _cuda_is_initialised() or _driver_is_initialised():
        return "CUDA is initialised"
    if thorough and _child_has_no_cuda():
        return "a forked process can't use CUDA"
    return None


def _child_has_no_cuda() -> bool:
    """torch keeps CUDA from a child once its parent has counted devices by CUDA and not by NVML."""
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    if not hasattr(cuda, "_is_in_bad_fork"):
        return False
    child = os.fork()
    if child == 0:
        os._exit(int(bool(cuda._is_in_bad_fork())))
    return os.waitpid(child, 0)[1] != 0


def _cuda_is_initialised() -> bool:
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    return hasattr(cuda, "is_initialized") and bool(cuda.is_initialized())  # torch may be half imported


def _driver_is_initialised() -> bool:
    """Whether anything called cuInit here; a child could not use CUDA then.

    The driver itself is asked. Device files tell nothing: NVML, which vLLM asks when it is imported, opens
    /dev/nvidia-uvm too (seen with driver 580).
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False  # no driver here
    return bool(driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != _NOT_INITIALISED)


def _has_children() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def fork() -> int:
    """As `os.fork`; what was written so far is written once."""
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        # Python 3.12 warns when there are threads: OpenBLAS has some, and looks after itself in a fork.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def result_in_child(function: Callable[[], Result]) -> Result:
    """What a function returns in a forked child, whose other traces go with it: pickled on the way.

    Raises RuntimeError with the child's traceback where it failed.
    """
    read_end, write_end = os.pipe()
    child = fork()
    if child == 0:
        with contextlib.suppress(BaseException), os.fdopen(write_end, "wb") as pipe:
            try:
                told = pickle.dumps((function(), None))
            except BaseException:
                told = pickle.dumps((None, traceback.format_exc()))
            pipe.write(told)
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    result, problem = pickle.loads(answer) if answer else (None, f"it ended with wait status {status}")
    if problem is not None:
        raise RuntimeError(f"in a forked process: {problem}")
    return cast(Result, result)
