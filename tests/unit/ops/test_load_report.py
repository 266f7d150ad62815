"""report.json of a load keeps to its schema; its page stands alone and shows each request."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from support.loads import ended_by_an_error, event, every_prompt, request, run
from warmops.load_html import render_html
from warmops.load_judge import judge_run, judge_series
from warmops.load_picture import render_svg
from warmops.load_plan import EVENTS, LoadRun, LoadShape, Outcome
from warmops.load_report import SCHEMA_FILE, LoadReport, Middle, middles, to_json
from warmops.load_table import show
from warmops.report_files import as_text

SVG = "{http://www.w3.org/2000/svg}"
REQUESTS = (
    request(1.0),
    request(2.0, streaming=False),
    ended_by_an_error(9.5),
    request(11.0, takes=9.5),
    request(12.0, outcome=Outcome.CUT, message="<no end>"),
    request(13.0, outcome=Outcome.FAILED, first_token_at=None, status=503, message="No engine is ready."),
    request(25.0, text="Berlin."),
)
KILL = run("kill", *REQUESTS, seen=event())
SHAPE = LoadShape(clients=8, streaming=4, seconds=20, max_tokens=24)


def report(*runs: LoadRun, name: str = "kill", shape: LoadShape = SHAPE) -> LoadReport:
    judged = tuple(judge_run(measured) for measured in runs)
    return LoadReport(
        project="p",
        environment="cpu",
        model="Org/Name",
        identity="a" * 64,
        started_at="2026-11-29T12:00:00Z",
        host={"cores": 2},
        event=name,
        shape=shape,
        runs=judged,
        findings=judge_series(name, judged, control=EVENTS[name].control),
    )


@pytest.mark.parametrize(
    "found",
    [
        report(KILL),
        report(run("none", request(1.0)), name="none", shape=replace(SHAPE, rate=2.5)),
        report(run("none"), name="none"),
        *(report(replace(KILL, event=name), name=name) for name in EVENTS),
    ],
)
def test_report_keeps_to_its_schema(found: LoadReport) -> None:
    schema = json.loads(SCHEMA_FILE.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(as_text(to_json(found))), schema)


def test_the_schema_names_every_event_and_no_other_version() -> None:
    schema = json.loads(SCHEMA_FILE.read_text())
    assert schema["$defs"]["event"]["enum"] == list(EVENTS)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**to_json(report(KILL)), "schema": 2}, schema)


def test_each_request_is_told_with_its_times() -> None:
    told = to_json(report(KILL))["runs"][0]
    assert told["counts"] == {"sent": 7, "answered": 4, "failed": 1, "cut": 1, "error event": 1}
    assert told["requests"][2]["code"] == "engine_stopped"
    assert (told["requests"][3]["sent"], told["requests"][3]["first_token"]) == (11.0, 15.75)
    assert told["phases"][0] == {"name": "event", "begin": 10.0, "seconds": 10.0}


def test_one_failed_expectation_fails_the_report() -> None:
    good = report(run("none", *every_prompt(1.0)), name="none")
    assert good.passed
    assert not report(KILL).passed
    assert not replace(good, runs=()).passed
    assert not report(
        run("roll", request(1.0), request(11.0), request(25.0), seen=event(ending=None)), name="roll"
    ).passed


def test_medians_and_spread() -> None:
    runs = [run("none", request(1.0, takes=takes)) for takes in (0.2, 0.8, 0.4)]
    found = middles([judge_run(measured) for measured in runs])
    assert found["first token before, max"] == Middle(
        median=pytest.approx(0.2), least=pytest.approx(0.1), most=pytest.approx(0.4)
    )
    assert "next first token" not in found
    assert middles([]) == {}


def test_page_stands_alone_and_escapes() -> None:
    page = render_html(report(KILL))
    assert "Failed:" in page
    assert "&lt;no end&gt;" in page
    assert "<no end>" not in page
    assert "Answers that differ" in page
    assert "from the send time" in page
    assert not re.search(r"<script|<link|src=|@import|url\(", page)
    with_rate = report(run("none", request(1.0)), name="none", shape=replace(SHAPE, rate=2.5))
    assert "from the intended send time" in render_html(with_rate)


def test_each_request_is_a_mark_and_each_phase_a_band() -> None:
    tree = ElementTree.fromstring(render_svg(judge_run(KILL)))
    titles = [title.text or "" for title in tree.iter(f"{SVG}title")]
    assert [title for title in titles if title.startswith(("down", "starting"))] == [
        "down: 4.0 s",
        "starting: 6.0 s",
    ]
    assert sum(title.startswith("client 0") for title in titles) == len(REQUESTS)
    assert len(list(tree.iter(f"{SVG}circle"))) == 4
    assert len(list(tree.iter(f"{SVG}path"))) == 3


def test_nothing_is_drawn_outside_the_picture() -> None:
    tree = ElementTree.fromstring(render_svg(judge_run(KILL)))
    _, _, width, height = map(float, tree.attrib["viewBox"].split())
    for circle in tree.iter(f"{SVG}circle"):
        assert 0 < float(circle.attrib["cx"]) < width
        assert 0 < float(circle.attrib["cy"]) < height


def test_an_empty_run_is_a_picture_too() -> None:
    ElementTree.fromstring(render_svg(judge_run(run("none"))))


def test_the_terminal_shows_what_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show(report(KILL), tmp_path)
    told = " ".join(capsys.readouterr().err.split())
    assert "kill #1: cut: expected 0, found 1" in told
    assert "next first token" in told
