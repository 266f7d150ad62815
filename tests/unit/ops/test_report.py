"""report.json keeps to its schema; report.html stands alone and shows what failed."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from warmops.drill_plan import Finding
from warmops.evidence import Mark, StartEvidence
from warmops.phases import PHASE_NAMES, UNATTRIBUTED, Phase
from warmops.report import SCHEMA_FILE, Bench, Report, Run, Series, medians, to_json
from warmops.report_files import write_files
from warmops.report_html import render_html
from warmops.report_svg import COLOURS, render_picture, render_svg

GOOD = Finding(name="engine start", expected="hit", found="hit", ok=True)
BAD = Finding(name="greedy answer", expected="same", found="'<Paris>' became 'Berlin'", ok=False)
RUN = Run(
    kind="engine-restart",
    repetition=1,
    evidence=StartEvidence(
        outcome="hit", tensors=303, mapped_bytes=269060552, marks=(Mark(event="ready", t=1.0),)
    ),
    findings=(GOOD,),
    phases=(
        Phase(name="imports", begin=0.0, seconds=6.5),
        Phase(name="unattributed", begin=6.5, seconds=2.0),
    ),
    seconds={"ready": 14.0, "first token": 14.25},
    memory_bytes={"vllm": 1_300_000_000, "weight-cache": None},
    answer="The capital of France is Paris.",
)
REPORT = Report(
    project="p",
    environment="cpu",
    model="Org/Name",
    identity="a" * 64,
    started_at="2026-11-29T12:00:00Z",
    host={"cores": 2},
    runs=(RUN,),
)
BENCH = Bench(
    page_cache="warm",
    series=(
        Series(kind="stock", title="stock <vllm>", seconds=(18.0, 16.0, 17.0)),
        Series(kind="restart", title="make restart", seconds=(8.5, 8.0)),
    ),
    same_answer=True,
)


@pytest.mark.parametrize(
    "report",
    [
        REPORT,
        replace(REPORT, bench=BENCH),
        replace(REPORT, runs=(replace(RUN, findings=(BAD,), answer=None),)),
    ],
)
def test_report_keeps_to_its_schema(report: Report, tmp_path: Path) -> None:
    schema = json.loads(SCHEMA_FILE.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    folder = write_files(tmp_path, "2026-11-29T12:00:00Z", to_json(report), render_html(report))
    assert folder.name == "20261129T120000Z"
    jsonschema.validate(json.loads((folder / "report.json").read_text()), schema)
    assert (folder / "report.html").read_text().endswith("</html>\n")


def test_schema_refuses_another_version() -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**to_json(REPORT), "schema": 1}, json.loads(SCHEMA_FILE.read_text()))


def test_one_failed_expectation_fails_the_report() -> None:
    assert REPORT.passed
    assert not replace(REPORT, runs=(RUN, replace(RUN, findings=(GOOD, BAD)))).passed
    assert not replace(REPORT, runs=()).passed


def test_medians_and_ratio() -> None:
    runs = [replace(RUN, seconds={"ready": value}) for value in (3.0, 1.0, 2.0)]
    assert medians(runs) == {"ready": 2.0}
    assert [BENCH.of_first(one) for one in BENCH.series] == [1.0, pytest.approx(8.25 / 17.0)]


def test_page_stands_alone_and_escapes() -> None:
    page = render_html(replace(REPORT, bench=BENCH, runs=(replace(RUN, findings=(GOOD, BAD)),)))
    assert "Failed:" in page
    assert "&lt;Paris&gt;" in page
    assert "<Paris>" not in page
    assert not re.search(r"<script|<link|src=|@import|url\(", page)


def test_picture_is_xml_with_a_bar_for_each_phase() -> None:
    tree = ElementTree.fromstring(render_svg((RUN, replace(RUN, repetition=2, phases=()))))
    names = [title.text for title in tree.iter("{http://www.w3.org/2000/svg}title")]
    assert names == ["imports: 6.500 s", "unattributed: 2.000 s"]


def test_every_phase_has_a_colour_of_its_own() -> None:
    assert set(COLOURS) == {*PHASE_NAMES, UNATTRIBUTED}
    assert len(set(COLOURS.values())) == len(COLOURS)


def test_a_picture_that_stands_alone_has_titles_and_a_legend_of_what_can_be_seen() -> None:
    short = Phase(name="listen", begin=8.5, seconds=0.001)
    runs = [replace(RUN, kind=one.kind, phases=(*RUN.phases, short)) for one in BENCH.series]
    tree = ElementTree.fromstring(render_picture(runs, {one.kind: one.title for one in BENCH.series}))
    texts = [text.text for text in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("stock <vllm>") == texts.count("make restart") == 1
    assert {"imports", "unattributed"} <= set(texts)
    assert "listen" not in texts
