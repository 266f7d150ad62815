"""Reads vLLM's log lines: did it miss the weight cache, and what was its last error.

In: lines of one start. Out: `MissLine`s, the last error. Refuses to know: processes; it is fed text.
The phrases are those of vLLM 0.32 and 0.33 (model_loader/weight_cache/ipc_loader.py, protocol.py) and of our
plugin.
"""

import re
from dataclasses import dataclass

from warmstack_shared.output import error_in

# Order matters: vLLM wraps one reason in another ("did not become ready within …: … Weights were released").
_REASONS = (
    ("pid_collision", re.compile(r"invalid device context")),
    ("wrong_gpu", re.compile(r"Daemon GPU \S+ != engine GPU")),
    ("mismatch", re.compile(r"WeightCacheKey mismatch on fields|Weight cache role mismatch")),
    ("released", re.compile(r"Weights were released")),
    (
        "unavailable",
        re.compile(
            r"Weight cache daemon did not become ready|Cannot connect to weight cache daemon"
            r"|Weight cache socket \S+ is unavailable|Weight cache daemon (error|rejected)"
            r"|the weight cache's file \S+ (is not there|has another owner)|mapping of buffer object failed"
        ),
    ),
)
_FALLBACK = re.compile(r"falling back to disk loading")
_SENTENCES = {
    "pid_collision": "the engine's process has the same number as the weight cache's",
    "wrong_gpu": "the weight cache holds the weights on another GPU than this engine's",
    "mismatch": "the weight cache holds other weights than this engine asks for",
    "released": "the weight cache has given its weights away",
    "unavailable": "vLLM could not reach the weights in the weight cache",
}


@dataclass(frozen=True, kw_only=True)
class MissLine:
    reason: str
    fallback: bool
    sentence: str


class LogReading:
    """Fed with each line of one start, in order."""

    def __init__(self) -> None:
        self.last_error: str | None = None  # the last line that names an error and says something
        self._reason: tuple[str, str] | None = None
        self._fallback_without_reason: str | None = None

    def feed(self, line: str) -> MissLine | None:
        """A fallback to disk that this line proves, at once; refusals are known at the end: `refusal`."""
        line = line.rstrip()
        self.last_error = error_in(line) or self.last_error
        reason = next((name for name, phrase in _REASONS if phrase.search(line)), None)
        if reason:
            self._reason = reason, line
        if _FALLBACK.search(line):
            if not reason:
                # "Weight cache IPC loading failed; falling back": the traceback with the reason follows.
                self._fallback_without_reason = line
                return None
            return _miss(reason, line, fallback=True)
        if reason and self._fallback_without_reason:
            self._fallback_without_reason = None
            return _miss(reason, line, fallback=True)
        return None

    def unexplained_fallback(self) -> MissLine | None:
        """Asked when the engine is ready: a fallback whose reason no line named."""
        line, self._fallback_without_reason = self._fallback_without_reason, None
        return _miss("unavailable", line, fallback=True) if line else None

    def refusal(self) -> MissLine | None:
        """Asked when vLLM ended before it was ready: why it refused to go on without the weight cache."""
        return _miss(*self._reason, fallback=False) if self._reason else None


def _miss(reason: str, line: str, *, fallback: bool) -> MissLine:
    return MissLine(
        reason=reason,
        fallback=fallback,
        sentence=f"{_SENTENCES[reason]}: {error_in(line) or line}",
    )
