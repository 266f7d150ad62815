"""What the supervisor tells the world: one immutable `Status`, shown as JSON, as a sentence, and as metrics.

In: facts that the loop gathered. Out: text. Refuses to know: how they were gathered.
"""

import json
import time
from dataclasses import asdict, dataclass, replace

from warmstack_supervisor.states import State

SCHEMA = 1
# Bytes are asked for every few seconds; older than this, "held" is not confirmed any more.
CONFIRMED_FOR_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class Status:
    """Fields as in docs/architecture.md, "/status"; `confirmed_at` is monotonic seconds and is not shown."""

    state: State
    since: str
    model: str
    identity: str
    model_digest: str
    files: str | None
    bytes_held: int
    rank_pids: tuple[int, ...]
    highest_pid: int
    restarts: int
    reason: str | None
    last_error: str | None
    vllm_version: str
    load_seconds: float | None
    degraded: bool
    confirmed_at: float | None = None

    def to_json(self) -> str:
        shown = asdict(replace(self, confirmed_at=None))
        del shown["confirmed_at"]
        return json.dumps({"schema": SCHEMA, **shown})


def utc_now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def health_of(status: Status, now: float) -> tuple[bool, str]:
    """Healthy, and a sentence. Only weights that are held, and were found held a moment ago, are healthy."""
    if status.state is not State.HELD:
        because = f": {status.reason}" if status.reason else ""
        degraded = "; engines that mapped the weights keep serving" if status.degraded else ""
        return False, f"the weight cache is {status.state}{because}{degraded}"
    if status.confirmed_at is None or now - status.confirmed_at > CONFIRMED_FOR_SECONDS:
        return False, "the weight cache holds the weights, but vLLM does not confirm it"
    return True, f"{status.bytes_held} bytes of {status.model} are held"


def metrics_of(status: Status, now: float) -> str:
    """Prometheus text format, version 0.0.4."""
    prefix = "warmstack_weight_cache"
    lines = [f"# HELP {prefix}_state 1 for the state that it is in.", f"# TYPE {prefix}_state gauge"]
    lines += [f'{prefix}_state{{state="{state}"}} {int(state is status.state)}' for state in State]
    values = (
        (
            "healthy",
            "gauge",
            "1 when the weights are held and vLLM confirms it.",
            int(health_of(status, now)[0]),
        ),
        (
            "degraded",
            "gauge",
            "1 when weights were held before and no child holds them now.",
            int(status.degraded),
        ),
        ("bytes_held", "gauge", "Bytes of weights that vLLM says it holds.", status.bytes_held),
        ("restarts_total", "counter", "Starts of vllm preload after the first.", status.restarts),
        (
            "load_seconds",
            "gauge",
            "Seconds that the last load took; 0 before the first.",
            status.load_seconds or 0,
        ),
    )
    for name, kind, text, value in values:
        lines += [
            f"# HELP {prefix}_{name} {text}",
            f"# TYPE {prefix}_{name} {kind}",
            f"{prefix}_{name} {value}",
        ]
    return "\n".join(lines) + "\n"
