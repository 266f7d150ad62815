"""`make bench` on the real stack: each kind of start once, side by side, with the ratio in the report."""

from __future__ import annotations

import json

from support.stack import Stack


def test_every_kind_of_start_stands_beside_stock(stack: Stack) -> None:
    report = json.loads(stack.warm("bench", "--repeat", "1", "--no-first", "--json").stdout)
    assert report["passed"] is True
    series = {one["kind"]: one for one in report["bench"]["series"]}
    assert list(series) == ["stock", "plain", "container", "restart"]
    assert report["bench"]["same_answer"] is True
    for one in series.values():
        assert one["of_first"] == round(one["median_seconds"] / series["stock"]["median_seconds"], 4)
    outcomes = {run["kind"]: run["outcome"] for run in report["runs"]}
    assert outcomes["restart"] == outcomes["container"] == "hit"
    assert all(run["memory_bytes"] for run in report["runs"])
    stack.wait_ready()
    assert "Paris" in stack.ask()
