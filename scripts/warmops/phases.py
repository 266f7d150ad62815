"""Where the seconds of one engine start went: moments in order become phases.

In: the evidence of a start and the moments that were measured from outside, unix seconds.
Out: adjoining phases. It refuses to guess: where a moment is missing, the gap is called unattributed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from warmops.evidence import StartEvidence

UNATTRIBUTED = "unattributed"

# Each moment, and the phase that ends at it when the moment before it is known too.
_ORDER: tuple[tuple[str, str], ...] = (
    ("asked", ""),
    ("stopped", "stop old engine"),
    ("container", "container"),
    ("engine-start", "entry point"),
    ("weight-cache-ready", "wait for weight cache"),
    ("pids-moved", "move process ids"),
    ("serve", "hand over"),
    ("imported", "imports"),
    ("load-begins", "set up worker"),
    ("weights", "load or map weights"),
    ("ready", "warm up and listen"),
    ("first-token", "first token"),
)
# A start without these has nothing missing: nobody asked for it, nothing had to be stopped, or the engine
# came back inside its old container.
_OPTIONAL = frozenset({"asked", "stopped", "container", "pids-moved", "weight-cache-ready"})
PHASE_NAMES = tuple(phase for _, phase in _ORDER if phase)


@dataclass(frozen=True, kw_only=True)
class Phase:
    """`begin` in seconds after the first moment of the start."""

    name: str
    begin: float
    seconds: float


def phases_of(evidence: StartEvidence, measured: Mapping[str, float]) -> tuple[Phase, ...]:
    """Phases of one start. `measured` may hold `asked`, `stopped`, `container`, `ready`, `first-token`."""
    moments = {**evidence.moments, **{mark.event: mark.t for mark in reversed(evidence.marks)}, **measured}
    known = [(name, phase, moments[name]) for name, phase in _ORDER if name in moments]
    if len(known) < 2:
        return ()
    origin = known[0][2]
    phases: list[Phase] = []
    for (earlier, _, begin), (name, phase, end) in pairwise(known):
        # Clocks of container, Docker and client are one clock, read at different moments: clip, never invert.
        length = max(0.0, end - begin)
        label = phase if _adjoin(earlier, name) else UNATTRIBUTED
        phases.append(Phase(name=label, begin=max(0.0, begin - origin), seconds=length))
    return tuple(phases)


def _adjoin(earlier: str, later: str) -> bool:
    names = [name for name, _ in _ORDER]
    between = names[names.index(earlier) + 1 : names.index(later)]
    return all(name in _OPTIONAL for name in between)
