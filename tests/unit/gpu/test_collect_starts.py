"""Tables of starts and loaders, and the picture of three starts: from data alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from gpu.collect import collect, why_not
from gpu.collect_starts import LOADERS, loader_table, picture_of_both, starts_of, starts_table
from warmops.phases import UNATTRIBUTED


def phases(**seconds: float) -> list[dict[str, Any]]:
    return [{"name": name.replace("_", " "), "seconds": value} for name, value in seconds.items()]


def report(folder: Path, lane: str, *runs: tuple[str, float]) -> None:
    (folder / lane).mkdir(parents=True, exist_ok=True)
    told = [
        {"kind": kind, "repetition": at, "phases": phases(imports=seconds - 1, weights=1.0)}
        for at, (kind, seconds) in enumerate(runs, 1)
    ]
    (folder / lane / "bench.report.json").write_text(json.dumps({"runs": told}))


def restart(*told: dict[str, Any], **facts: Any) -> dict[str, Any]:
    return {"lane": "eight", "step": "restart", "phases": list(told), **facts}


def test_seconds_of_a_start_stand_by_what_they_went_into(tmp_path: Path) -> None:
    told = phases(old_engine_stops=1.0, imports=2.0, weights=0.5, graph_capture=7.0, listen=0.25)
    unknown = {"name": UNATTRIBUTED, "seconds": 0.25}
    (start,) = starts_of(tmp_path, [restart(*told, unknown)])
    assert [phase.begin for phase in start.phases] == [0.0, 1.0, 3.0, 3.5, 10.5, 10.75]
    lines = starts_table([start])
    assert lines[-1] == "| eight | restart | 11.0 | 1.0 | 2.0 | 0.0 | 0.5 | 0.0 | 7.0 | 0.2 | 2.3% |"
    assert starts_table([]) == []


def test_phases_of_a_load_are_not_those_of_a_start(tmp_path: Path) -> None:
    assert starts_of(tmp_path, [restart(*phases(event=1.0), event="roll"), {"lane": "a", "step": "up"}]) == []


def test_the_picture_has_the_starts_in_the_middle(tmp_path: Path) -> None:
    report(tmp_path, "bench", ("stock", 50.0), ("stock", 54.0), ("stock", 59.0), ("restart", 14.0))
    assert picture_of_both(starts_of(tmp_path, [])) == ""
    report(tmp_path, "levers", ("stock", 45.0), ("restart", 4.0))
    picture = picture_of_both(starts_of(tmp_path, [restart(*phases(imports=16.0))]))
    words = [text.text for text in ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")]
    assert {"54.0 s", "14.0 s", "4.0 s", "the same with both levers"} <= set(words)
    assert not {"50.0 s", "45.0 s", "16.0 s"} & set(words)


def test_a_loader_that_failed_says_so(tmp_path: Path) -> None:
    rows = [
        {"loader": "runai", "page_cache": "warm", "seconds": 8.65, "gib_per_second": 1.7},
        {"loader": "multi-thread", "error": "no such module"},
    ]
    path = tmp_path / LOADERS
    assert loader_table(path) == []
    path.write_text(json.dumps(rows))
    assert loader_table(path)[-2:] == [
        "| runai | warm | 8.7 | 1.70 |",
        "| multi-thread |  |  | no such module |",
    ]


def test_what_a_session_brought_beside_its_lanes_is_kept(tmp_path: Path) -> None:
    results, target = tmp_path / "results", tmp_path / "target"
    results.mkdir()
    (results / LOADERS).write_text("[]")
    (results / "stock.log").write_text(
        "nothing\nSelected SomeKernel for A\n    assert output_size is not None\n"
    )
    row = {
        "what": "engine",
        "rank": 0,
        "planned_mib": 1,
        "measured_mib": 3000,
        "off_percent": 0.0,
        "ok": True,
    }
    for name, log in (("a", {"graphs_gib": -4.2}), ("b", {}), ("c", {"graphs_gib": 0.5})):
        facts = {"began": name, "ok": True, "rows": [row], "plan": {"kv_cache": 2 * 1024**3}, "log": log}
        (results / name).mkdir()
        (results / name / "memory.json").write_text(json.dumps({"lane": name, "step": "memory", **facts}))
    collect(results, target)
    assert (target / LOADERS).read_text() == "[]"
    assert (target / "stock-evidence.txt").read_text().splitlines() == [
        "Selected SomeKernel for A",
        "    assert output_size is not None",
    ]
    text = (target / "README.md").read_text()
    assert "| a | memory | 3000 | 2048 |  |  |" in text
    assert "| b | memory | 3000 | 2048 |  |  |" in text
    assert "| c | memory | 3000 | 2048 | 512 | 440 |" in text


def test_another_answer_is_said() -> None:
    facts = {"ok": False, "outcome": "hit"}
    assert why_not({**facts, "same_answer": False}) == "the greedy answer is another one"
    assert why_not({**facts, "same_answer": None}) == "hit"
