"""The judgement of a load: each expectation has a run that fulfils it and one that does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.loads import ended_by_an_error, event, every_prompt, request, run
from warmops.drill_plan import Finding
from warmops.load_judge import Spread, judge_run, judge_series, spread, window_of
from warmops.load_plan import EVENTS, PROMPTS, LoadRun, Outcome

BEFORE, HELD, AFTER = every_prompt(1.0), request(11.0, takes=9.5), every_prompt(25.0)
KILLED = ended_by_an_error(9.2)
GOOD = {
    "none": run("none", *BEFORE),
    "restart": run("restart", *BEFORE, HELD, *AFTER, seen=event(ending=None)),
    "kill": run("kill", *BEFORE, KILLED, HELD, *AFTER, seen=event()),
    "hang": run("hang", *BEFORE, KILLED, HELD, *AFTER, seen=event()),
    "standby-kill": run("standby-kill", *BEFORE, KILLED, request(10.2), *AFTER, seen=event()),
    "roll": run("roll", *BEFORE, request(11.0), *AFTER, seen=event(ending=None)),
    "surge-only": run("surge-only", *BEFORE, request(11.0), *AFTER, seen=event(ending=None)),
}


def failed(measured: LoadRun) -> list[str]:
    return [finding.name for finding in judge_run(measured).findings if not finding.ok]


def with_one_more(name: str, **changes: object) -> LoadRun:
    more = replace(request(12.0), **changes)  # type: ignore[arg-type]
    return replace(GOOD[name], requests=(*GOOD[name].requests, more))


@pytest.mark.parametrize("name", EVENTS)
def test_a_good_run_passes(name: str) -> None:
    assert failed(GOOD[name]) == []


@pytest.mark.parametrize("name", EVENTS)
def test_in_no_event_may_a_request_fail_or_an_answer_be_cut(name: str) -> None:
    assert failed(with_one_more(name, outcome=Outcome.FAILED, first_token_at=None)) == ["failed"]
    assert failed(with_one_more(name, outcome=Outcome.CUT)) == ["cut"]


@pytest.mark.parametrize("name", ["none", "restart", "roll", "surge-only"])
def test_where_streams_can_finish_no_stream_may_end_early(name: str) -> None:
    assert failed(with_one_more(name, outcome=Outcome.ERROR_EVENT)) == ["error events"]


@pytest.mark.parametrize("name", ["kill", "hang", "standby-kill"])
def test_only_streams_in_flight_may_end_with_an_error_event(name: str) -> None:
    assert failed(with_one_more(name, outcome=Outcome.ERROR_EVENT)) == ["other error events"]
    dumb = replace(KILLED, outcome=Outcome.CUT)
    assert failed(replace(GOOD[name], requests=(*BEFORE, dumb, *AFTER))) == ["cut", "streams in flight"]
    # With no stream in flight nothing is shown about them, and that is no success.
    assert failed(replace(GOOD[name], requests=(*BEFORE, *AFTER))) == ["streams in flight"]


def test_an_event_that_was_not_carried_out_fails() -> None:
    broken = event(ending=None, error="no memory for a second engine")
    assert failed(replace(GOOD["roll"], seen=broken)) == ["event"]


def test_without_answers_on_both_sides_nothing_is_shown() -> None:
    assert failed(run("none")) == ["answered", "greedy answers"]
    assert failed(run("roll", *BEFORE, seen=event(ending=None))) == ["answered", "greedy answers"]


def greedy(*answers: tuple[str, float], others: bool = True) -> Finding:
    """The finding when the first prompt got these answers (text, sent at), and no other changed."""
    requests = [request(at, text=text) for text, at in answers]
    if others:
        requests += [one for one in (*BEFORE, *AFTER) if one.prompt != PROMPTS[0]]
    findings = judge_run(run("roll", *requests, seen=event(ending=None))).findings
    return next(finding for finding in findings if finding.name == "greedy answers")


@pytest.mark.parametrize("at", [12.0, 25.0])
def test_an_answer_may_not_change_at_or_after_the_event(at: float) -> None:
    assert greedy(("Paris.", 1.0), ("Paris.", at)).ok
    changed = greedy(("Paris.", 1.0), ("Berlin.", at))
    assert not changed.ok
    assert changed.found.endswith("the same, 1 changed: 'What is the capital of France?'")


def test_an_answer_that_came_on_one_side_alone_is_no_proof_of_sameness() -> None:
    assert greedy(("Paris.", 1.0)).found.endswith("1 answered on one side of the event alone")
    assert not greedy(("Paris.", 1.0), ("Paris.", 25.0), others=False).ok


def test_prompts_that_vary_by_themselves_are_left_out_while_most_do_not() -> None:
    found = greedy(("Paris.", 1.0), ("Berlin.", 2.0), ("Rome.", 25.0))
    assert found.ok
    assert found.found == f"{len(PROMPTS) - 1} prompts the same, 1 vary by themselves and are left out"
    assert not greedy(("Paris.", 1.0), ("Berlin.", 2.0), others=False).ok


def test_an_answer_that_comes_back_after_another_one_varies_by_itself() -> None:
    assert greedy(("Paris.", 1.0), ("Paris.", 25.0), ("Berlin.", 26.0)).ok
    assert not greedy(("Paris.", 1.0), ("Berlin.", 12.0), ("Paris.", 25.0)).ok  # during it there was no other
    assert not greedy(("Paris.", 1.0), ("Berlin.", 25.0), ("Rome.", 26.0)).ok
    # In a roll both engines answer during it; that of the new one is what stays.
    assert not greedy(("Paris.", 1.0), ("Paris.", 12.0), ("Berlin.", 13.0), ("Berlin.", 25.0)).ok


def test_windows() -> None:
    measured = GOOD["kill"]
    seen = [window_of(measured, one) for one in measured.requests]
    assert seen == [*["before"] * (len(PROMPTS) + 1), "during", *["after"] * len(PROMPTS)]
    assert window_of(measured, request(9.9, takes=0.4)) == "during"
    # Meant to be sent during the event, sent after it: the event made it late.
    assert window_of(measured, replace(request(21.0), intended_at=19.0)) == "during"


def test_what_the_event_added() -> None:
    judged = judge_run(GOOD["kill"])
    assert judged.first_token["before"] == Spread(
        count=len(PROMPTS) + 1, p50=pytest.approx(0.1), p99=pytest.approx(0.5), max=pytest.approx(0.5)
    )
    assert judged.added == {
        "p50": pytest.approx(4.65),
        "p99": pytest.approx(4.25),
        "max": pytest.approx(4.25),
    }
    assert judged.takeover_seconds == pytest.approx(5.75)
    assert judge_run(GOOD["none"]).added is None


def test_latency_counts_from_the_intended_moment() -> None:
    late = replace(request(5.0), intended_at=2.0)
    seen = judge_run(run("none", late)).first_token["before"]
    assert seen is not None
    assert seen.max == pytest.approx(3.1)


def test_percentiles_are_values_that_were_seen() -> None:
    assert spread([]) is None
    assert spread([3.0]) == Spread(count=1, p50=3.0, p99=3.0, max=3.0)
    assert spread(map(float, range(1, 201))) == Spread(count=200, p50=100.0, p99=198.0, max=200.0)


def rolls(*largest: float, control: float = 1.0) -> list[LoadRun]:
    """A control and a roll for each largest time to first token during the event."""
    runs = []
    for repetition, seconds in enumerate(largest, 1):
        for name, longest in (("surge-only", control), ("roll", seconds)):
            during = request(11.0, takes=2 * longest)
            runs.append(replace(GOOD[name], repetition=repetition, requests=(*BEFORE, during, *AFTER)))
    return runs


def series_passes(name: str, runs: list[LoadRun]) -> bool:
    findings = judge_series(name, [judge_run(measured) for measured in runs], control=EVENTS[name].control)
    assert findings
    return all(finding.ok for finding in findings)


def test_a_roll_is_compared_with_its_control_by_the_median() -> None:
    assert series_passes("roll", rolls(2.9, 9.0, 1.0))
    assert not series_passes("roll", rolls(2.9, 9.0, 3.1))
    assert series_passes("roll", rolls(3.1, control=1.2))
    assert not series_passes("roll", [GOOD["roll"]])  # no control, no figure
    assert judge_series("roll", [judge_run(GOOD["roll"])], control=None) == ()  # left out: not judged
    assert not series_passes("roll", [*rolls(1.0), run("roll", *BEFORE, *AFTER, seen=event(ending=None))])


def test_a_standby_takes_over_within_a_second() -> None:
    assert series_passes("standby-kill", [GOOD["standby-kill"]])
    (found,) = judge_series("standby-kill", [judge_run(GOOD["standby-kill"])], control=None)
    assert found.found == "0.30 s, +0.20 s against the 0.10 s (p50) before the kill"
    slow = replace(GOOD["standby-kill"], requests=(*BEFORE, KILLED, HELD, *AFTER))
    assert not series_passes("standby-kill", [slow])
    assert not series_passes("standby-kill", [replace(slow, requests=(*BEFORE, KILLED))])
    # A request that was under way at the kill and had its first token after it shows no takeover.
    early = replace(slow, requests=(*BEFORE, KILLED, request(9.99), *AFTER))
    assert not series_passes("standby-kill", [early])


@pytest.mark.parametrize("name", ["none", "restart", "kill", "hang", "surge-only"])
def test_elsewhere_no_duration_is_judged(name: str) -> None:
    assert judge_series(name, [judge_run(GOOD[name])], control=None) == ()
