"""Where the seconds of one engine start went: moments in order become phases.

In: the evidence of a start and the moments that were measured from outside, unix seconds.
Out: adjoining phases. It refuses to guess: where a moment is missing, the gap is called unattributed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from warmops.evidence import StartEvidence
from warmops.moments import MOMENTS

UNATTRIBUTED = "unattributed"
PHASE_NAMES = tuple(moment.phase for moment in MOMENTS if moment.phase)


@dataclass(frozen=True, kw_only=True)
class Phase:
    """`begin` in seconds after the first moment of the start."""

    name: str
    begin: float
    seconds: float


def phases_of(evidence: StartEvidence, measured: Mapping[str, float]) -> tuple[Phase, ...]:
    """Phases of one start. `measured` may hold `asked`, `stopped`, `container`, `ready`, `first-token`.

    A start without any mark is one of stock vLLM, which has no entry point of ours.
    """
    marks = {mark.event: mark.t for mark in reversed(evidence.marks)}
    moments = {**evidence.moments, **marks, **measured}
    order = [moment for moment in MOMENTS if marks or moment.source != "mark"]
    known = [moment for moment in order if moment.name in moments]
    if len(known) < 2:
        return ()
    origin = moments[known[0].name]
    phases: list[Phase] = []
    end_before = origin
    for earlier, later in pairwise(known):
        # Clocks of container, Docker and client are one clock, read at different moments: clip, never invert.
        end = max(end_before, moments[later.name])
        missing = order[order.index(earlier) + 1 : order.index(later)]
        name = UNATTRIBUTED if any(moment.needed for moment in missing) else later.phase
        phases.append(Phase(name=name, begin=end_before - origin, seconds=end - end_before))
        end_before = end
    return tuple(phases)


def unattributed_share(phases: Sequence[Phase]) -> float:
    """The part of a start that no phase explains, 0 to 1."""
    total = sum(phase.seconds for phase in phases)
    unknown = sum(phase.seconds for phase in phases if phase.name == UNATTRIBUTED)
    return unknown / total if total else 0.0
