"""The judgement of a load: what clients felt before, during and after an event, against what is declared.

In: runs, each with its requests and its event as it happened. Out: figures and findings. It refuses to know
how they came about. Counts are judged in each run, durations by the median over the runs.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from warmops.drill_plan import Finding
from warmops.load_plan import EVENTS, PROMPTS, Expectation, LoadRun, Outcome, Request

Window = Literal["before", "during", "after"]
WINDOWS: tuple[Window, ...] = ("before", "during", "after")


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Percentiles by nearest rank, in seconds."""

    count: int
    p50: float
    p99: float
    max: float

    def minus(self, other: Spread) -> Mapping[str, float]:
        return {name: getattr(self, name) - getattr(other, name) for name in ("p50", "p99", "max")}


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One of the answers to a prompt, and how often it came in each window."""

    text: str
    counts: Mapping[Window, int]


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What one run showed. Spreads are None where nothing was measured."""

    run: LoadRun
    counts: Mapping[str, int]
    first_token: Mapping[Window, Spread | None]
    whole_answer: Mapping[Window, Spread | None]
    answers: Mapping[str, tuple[Variant, ...]]
    takeover_seconds: float | None
    findings: tuple[Finding, ...]

    @property
    def added(self) -> Mapping[str, float] | None:
        """Time to first token during the event minus that before it: p50, p99 and max in seconds."""
        during, before = self.first_token["during"], self.first_token["before"]
        return None if during is None or before is None else during.minus(before)

    @property
    def passed(self) -> bool:
        return all(finding.ok for finding in self.findings)


def judge_run(run: LoadRun) -> Judged:
    """Figures of one run, and each expectation of its event that a single run can show."""
    expectation = EVENTS[run.event]
    answers = _answers(run)
    return Judged(
        run=run,
        counts=_counts(run),
        first_token={
            window: spread(
                request.first_token_at - request.intended_at
                for request in _in_window(run, window)
                if request.first_token_at is not None
            )
            for window in WINDOWS
        },
        whole_answer={
            window: spread(
                request.ended_at - request.intended_at
                for request in _in_window(run, window)
                if not request.streaming and request.outcome is Outcome.ANSWERED
            )
            for window in WINDOWS
        },
        answers=answers,
        takeover_seconds=_takeover(run),
        findings=(
            *_carried_out(run),
            _answered(run),
            _none_of(run, Outcome.FAILED),
            _none_of(run, Outcome.CUT),
            *_error_events(expectation, run),
            _same_answers(run, answers),
        ),
    )


def judge_series(event: str, runs: Sequence[Judged], *, control: str | None) -> tuple[Finding, ...]:
    """What the event's declaration says about durations, by the median over its runs and its control's.

    `control`: the event that was run for comparison; without one the added time is not judged.
    """
    expectation = EVENTS[event]
    own = [judged for judged in runs if judged.run.event == event]
    findings = []
    if expectation.added_limit_seconds is not None and control is not None:
        compared = [judged for judged in runs if judged.run.event == control]
        findings.append(_added(expectation, expectation.added_limit_seconds, own, compared))
    if expectation.takeover_limit_seconds is not None:
        findings.append(_taken_over(expectation.takeover_limit_seconds, own))
    return tuple(findings)


def spread(values: Iterable[float]) -> Spread | None:
    """Percentiles of some durations in seconds; None of none."""
    ordered = sorted(values)
    if not ordered:
        return None
    p50, p99 = (ordered[math.ceil(share * len(ordered)) - 1] for share in (0.50, 0.99))
    return Spread(count=len(ordered), p50=p50, p99=p99, max=ordered[-1])


def window_of(run: LoadRun, request: Request) -> Window:
    """`before`: had its first token (or its end) before the event; `after`: meant to be sent after it."""
    if run.seen is None:
        return "before"
    first = request.first_token_at if request.first_token_at is not None else request.ended_at
    if first < run.seen.begun_at:
        return "before"
    return "after" if request.intended_at > run.seen.ended_at else "during"


def in_flight(run: LoadRun) -> list[Request]:
    """Streams that had begun when the event ended streams, and were not whole yet."""
    if run.seen is None or run.seen.ending is None:
        return []
    begin, end = run.seen.ending
    return [
        request
        for request in run.requests
        if request.first_token_at is not None and request.first_token_at <= end and request.ended_at >= begin
    ]


def _in_window(run: LoadRun, window: Window) -> list[Request]:
    return [request for request in run.requests if window_of(run, request) == window]


def _counts(run: LoadRun) -> Mapping[str, int]:
    found = Counter(request.outcome for request in run.requests)
    return {"sent": len(run.requests), **{str(outcome): found[outcome] for outcome in Outcome}}


def _answers(run: LoadRun) -> Mapping[str, tuple[Variant, ...]]:
    """Whole answers by prompt, each text with its counts, in the order in which the texts first came."""
    found: dict[str, dict[str, Counter[Window]]] = {}
    for request in sorted(run.requests, key=lambda one: one.ended_at):
        if request.outcome is Outcome.ANSWERED:
            texts = found.setdefault(request.prompt, {})
            texts.setdefault(request.text, Counter())[window_of(run, request)] += 1
    return {
        prompt: tuple(
            Variant(text=text, counts={window: counts[window] for window in WINDOWS})
            for text, counts in texts.items()
        )
        for prompt, texts in found.items()
    }


def _takeover(run: LoadRun) -> float | None:
    """From the beginning of the kill to the first token of any request sent after the kill, in seconds."""
    if run.seen is None or run.seen.ending is None:
        return None
    begin, end = run.seen.ending
    firsts = [
        request.first_token_at
        for request in run.requests
        if request.sent_at > end and request.first_token_at is not None
    ]
    return min(firsts) - begin if firsts else None


def _carried_out(run: LoadRun) -> list[Finding]:
    if run.event == "none":
        return []
    error = run.seen.error if run.seen is not None else "it never began"
    return [Finding(name="event", expected="carried out", found=error or "carried out", ok=error is None)]


def _answered(run: LoadRun) -> Finding:
    """Without an answer before the event and one that ended after it nothing is shown at all."""
    answered = [request for request in run.requests if request.outcome is Outcome.ANSWERED]
    before = sum(1 for request in answered if window_of(run, request) == "before")
    if run.event == "none":
        return Finding(name="answered", expected="some", found=str(before), ok=before > 0)
    after = sum(1 for request in answered if run.seen is not None and request.ended_at > run.seen.ended_at)
    return Finding(
        name="answered",
        expected="some before and some after",
        found=f"{before} before, {after} after",
        ok=before > 0 and after > 0,
    )


def _none_of(run: LoadRun, outcome: Outcome) -> Finding:
    found = [request for request in run.requests if request.outcome is outcome]
    return Finding(name=str(outcome), expected="0", found=_some(found), ok=not found)


def _some(requests: Sequence[Request]) -> str:
    """How many, and what most of them said."""
    if not requests:
        return "0"
    words = Counter(" ".join(filter(None, (str(r.status or ""), r.code, r.message))) for r in requests)
    sentence, count = words.most_common(1)[0]
    return f"{len(requests)} ({count} of them: {sentence or 'no word'})"


def _error_events(expectation: Expectation, run: LoadRun) -> list[Finding]:
    ended = [request for request in run.requests if request.outcome is Outcome.ERROR_EVENT]
    if not expectation.ends_streams:
        return [Finding(name="error events", expected="0", found=_some(ended), ok=not ended)]
    running = in_flight(run)
    others = [request for request in ended if request not in running]
    whole = sum(1 for request in running if request.outcome is Outcome.ANSWERED)
    told = sum(1 for request in running if request.outcome is Outcome.ERROR_EVENT)
    dumb = len(running) - whole - told
    found = f"{told} with an error event, {whole} whole" + (f", {dumb} without a word" if dumb else "")
    if not running:
        found = "none was in flight: this run shows nothing about them"
    return [
        Finding(
            name="streams in flight",
            expected="each ends whole or with an error event",
            found=found,
            ok=bool(running) and not dumb,
        ),
        Finding(name="other error events", expected="0", found=_some(others), ok=not others),
    ]


def _same_answers(run: LoadRun, answers: Mapping[str, tuple[Variant, ...]]) -> Finding:
    """A prompt that varies by itself tells nothing about the event."""
    restless = {prompt for prompt, variants in answers.items() if _vary_by_themselves(variants)}
    judged = {prompt: variants for prompt, variants in answers.items() if prompt not in restless}
    changed = [prompt for prompt, variants in judged.items() if len(variants) > 1]
    unseen = [prompt for prompt, variants in judged.items() if not _on_both_sides(run, variants)]
    found = f"{len(judged) - len({*changed, *unseen})} prompts the same"
    if changed:
        found += f", {len(changed)} changed: {', '.join(map(repr, changed))}"
    if unseen:
        found += f", {len(unseen)} answered on one side of the event alone"
    if restless:
        found += f", {len(restless)} vary by themselves and are left out"
    # With most prompts left out there is nothing that could have shown a change.
    enough = len(judged) - len(unseen) > len(PROMPTS) / 2
    ok = enough and not changed
    return Finding(name="greedy answers", expected="the same for each prompt", found=found, ok=ok)


def _vary_by_themselves(variants: Sequence[Variant]) -> bool:
    """Whether there were several answers before the event; or the one from before it beside another in one
    later window, and also after the event: what changed for good does not come back.
    """
    usual = [variant for variant in variants if variant.counts["before"]]
    if len(usual) != 1:
        return len(usual) > 1
    later: tuple[Window, ...] = ("during", "after")
    beside_another = any(
        usual[0].counts[window] and sum(1 for one in variants if one.counts[window]) > 1 for window in later
    )
    return beside_another and usual[0].counts["after"] > 0


def _on_both_sides(run: LoadRun, variants: Sequence[Variant]) -> bool:
    before = any(variant.counts["before"] for variant in variants)
    later = any(variant.counts["during"] or variant.counts["after"] for variant in variants)
    return before and (later or run.event == "none")


def _added(
    expectation: Expectation, limit: float, own: Sequence[Judged], control: Sequence[Judged]
) -> Finding:
    expected = f"at most {limit:g} s longer than in {expectation.control}, median"
    medians = [_median_largest(judged) for judged in (own, control)]
    if medians[0] is None or medians[1] is None:
        return Finding(
            name="largest added time to first token", expected=expected, found="not measured", ok=False
        )
    beyond = medians[0] - medians[1]
    found = f"{beyond:+.2f} s ({medians[0]:.2f} s against {medians[1]:.2f} s)"
    return Finding(
        name="largest added time to first token", expected=expected, found=found, ok=beyond < limit
    )


def _median_largest(runs: Sequence[Judged]) -> float | None:
    """Median of the largest added time to first token; None when a run did not measure it."""
    added = [judged.added for judged in runs]
    values = [one["max"] for one in added if one is not None]
    return statistics.median(values) if values and len(values) == len(runs) else None


def _taken_over(limit: float, own: Sequence[Judged]) -> Finding:
    expected = f"within {limit:g} s of the kill, median"
    values = [judged.takeover_seconds for judged in own if judged.takeover_seconds is not None]
    if not values or len(values) < len(own):
        return Finding(name="next first token", expected=expected, found="not measured", ok=False)
    middle = statistics.median(values)
    usual = statistics.median(
        judged.first_token["before"].p50 for judged in own if judged.first_token["before"]
    )
    # A first token takes its time from an engine that has been there all along as well.
    found = f"{middle:.2f} s, {middle - usual:+.2f} s against the {usual:.2f} s (p50) before the kill"
    return Finding(name="next first token", expected=expected, found=found, ok=middle < limit)
