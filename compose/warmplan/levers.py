"""Settings that make a restart on a GPU shorter and that no plan sets by itself: what each gains and risks.

Data only; `reference` shows them in docs/environment.md. Seconds are measured, with the file that has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MEASURED: Final = (
    "8B shape on one H200, vLLM 0.33.0, docs/measurements/h200-2026-11-30-second: 14.4 and 16.0 s to the "
    "first token without them; with both 4.2 s, two starts with no other at the same time"
)


@dataclass(frozen=True, kw_only=True)
class Lever:
    """One setting. `gain` is one restart with it alone, seconds to the first token."""

    key: str
    value: str
    gain: str
    risk: str


LEVERS: Final = (
    Lever(
        key="engine.arguments.cudagraph-capture-sizes",
        value="[1, 2, 4, 8, 16, 32]",
        gain="9.7 s: graphs of 6 sizes, not 51 (1.6 s instead of 7.3, 0.09 GiB instead of 0.70)",
        risk="sizes count tokens of a step, one for each request that decodes: 17 are padded to 32, and more "
        "than the largest size run without graphs. Take sizes that fit your load; its speed was not measured",
    ),
    Lever(
        key="engine.environment.VLLM_USE_MEGA_AOT_ARTIFACT",
        value='"1"',
        gain="11.6 s: compiled code is loaded whole, nothing is traced (0.9 s instead of 5.1)",
        risk="vLLM 0.33 has it off below torch 2.12, and ours is 2.11: it is tried by us, not by them",
    ),
)
