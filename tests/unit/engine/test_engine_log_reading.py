"""Log lines of vLLM 0.32 and 0.33, as they were seen, and what they say."""

import pytest

from warmstack_engine.log_reading import LogReading, MissLine
from warmstack_shared.output import error_in

CORE = "(EngineCore pid=3407) ERROR 11-29 16:45:53 [core.py:1510] "
PROTOCOL = "vllm.model_executor.model_loader.weight_cache.protocol."
WARN = "(EngineCore pid=9) WARNING 11-29 16:45:53 [ipc_loader.py:240] "
INFO = "(EngineCore pid=9) INFO 11-29 16:30:47 [ipc_loader.py:380] "
MISMATCH = "WeightCacheKey mismatch on fields: ['revision']"


def read(*lines: str) -> tuple[LogReading, list[MissLine]]:
    reading = LogReading()
    return reading, [miss for line in lines if (miss := reading.feed(line + "\n"))]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (f"{PROTOCOL}CacheConfigMismatchError: {MISMATCH}", "mismatch"),
        (
            "CacheConfigMismatchError: Daemon GPU GPU-1 != engine GPU GPU-2; check the socket path",
            "wrong_gpu",
        ),
        (
            "WeightCacheUnavailableError: Weight cache daemon did not become ready within 5.0s: "
            "Weight cache daemon error: Weights were released",
            "released",
        ),
        (
            "WeightCacheUnavailableError: Weight cache daemon did not become ready within 5.0s: "
            "Weight cache socket /run/x.sock is unavailable: [Errno 2] No such file or directory",
            "unavailable",
        ),
        ("torch.AcceleratorError: CUDA error: invalid device context", "pid_collision"),
        ("RuntimeError: mapping of buffer object failed", "unavailable"),
    ],
)
def test_refusals(error: str, reason: str) -> None:
    reading, at_once = read(
        CORE + error, "RuntimeError: Engine core initialization failed. See root cause above."
    )
    assert at_once == []
    refusal = reading.refusal()
    assert refusal is not None
    assert (refusal.reason, refusal.fallback) == (reason, False)
    assert reading.last_error == error


def test_fallback_with_its_reason_in_the_line() -> None:
    _, misses = read(f"{WARN}Weight cache unusable ({MISMATCH}); falling back to disk loading")
    assert [(miss.reason, miss.fallback) for miss in misses] == [("mismatch", True)]


def test_fallback_whose_reason_follows_in_the_traceback() -> None:
    reading, misses = read(
        CORE + "Weight cache IPC loading failed; falling back to disk loading",
        CORE + "Traceback (most recent call last):",
        CORE + "torch.AcceleratorError: CUDA error: invalid device context",
    )
    assert [(miss.reason, miss.fallback) for miss in misses] == [("pid_collision", True)]
    assert reading.unexplained_fallback() is None


def test_fallback_without_a_reason_is_not_lost() -> None:
    reading, misses = read(CORE + "Weight cache IPC loading failed; falling back to disk loading")
    assert misses == []
    unexplained = reading.unexplained_fallback()
    assert unexplained is not None
    assert unexplained.fallback


def test_a_hit_is_no_miss() -> None:
    reading, misses = read(
        f"{INFO}Waiting up to 60.0s for the weight cache daemon to start",
        f"{INFO}Mapped 303 tensors from the weight cache daemon (zero_copy mode)",
    )
    assert (misses, reading.refusal(), reading.last_error) == ([], None, None)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("vllm serve: error: unrecognized arguments: --nope", "error: unrecognized arguments: --nope"),
        (CORE + "ValueError: 3 heads", "ValueError: 3 heads"),
        (
            "pydantic_core._pydantic_core.ValidationError: 1 validation error",
            "pydantic_core._pydantic_core.ValidationError: 1 validation error",
        ),
        (
            "  Value error, no model type `foo` [type=value_error, input_value=ArgsKwargs((), {'model': …",
            "Value error, no model type `foo`",
        ),
        ("INFO:     Application startup complete.", None),
        (WARN + "can cause errors like `OSError: [Errno 24] Too many open files`.", None),
        (
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
            None,
        ),
    ],
)
def test_error_in(line: str, error: str | None) -> None:
    assert error_in(line) == error
