"""From the results of a session to docs/measurements: JSON, evidence lines of logs, tables, a picture.

    python3 -m gpu.collect RESULTS docs/measurements/h200-YYYY-MM-DD

In: the folder that `stage.sh` brought back, unpacked. Out: files whose every figure comes from there. A step
that was not run has no line.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gpu.collect_starts import LOADERS, loader_table, picture_of_both, starts_of, starts_table
from gpu.collect_tables import bench_tables, load_tables, nursery_lines
from gpu.figures import MIB, Cost, cost_picture

Facts = Mapping[str, Any]
_EVIDENCE = re.compile(
    r"warmstack: \{|Mapped \d+ tensors|Loading weights took|Model loading took|held outside this process"
    r"|Graph capturing finished|torch\.compile took|KV cache size|reserved [\d.]+ GiB|loaded model \("
    r"|sent \d+ tensors|WeightCacheKey mismatch|invalid device context|daemon .* exited"
    r"|Application startup complete|non-default args|Compiling a graph for|AOT compil|compiled graph\(s\)"
    r"|Selected \w+Kernel|assert \w+ is not None"
)
_MOST_LINES = 200
_ORDER = (
    "eight",
    "small",
    "timing",
    "tp2",
    "tp2-fork",
    "bench",
    "tp2-bench",
    "roll",
    "levers",
)
_RANK = {name: index for index, name in enumerate(_ORDER)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("target", type=Path)
    arguments = parser.parse_args()
    collect(arguments.results, arguments.target)


def collect(results: Path, target: Path) -> None:
    """Write everything below `target`; what stood there of an earlier run of the same name is replaced."""
    target.mkdir(parents=True, exist_ok=True)
    found = read_steps(results)
    for lane in sorted({facts["lane"] for facts in found}, key=lambda name: _RANK.get(name, 9)):
        of_lane = {facts["step"]: facts for facts in found if facts["lane"] == lane}
        text = json.dumps(of_lane, indent=1, ensure_ascii=False)
        (target / f"{lane}.json").write_text(text + "\n", encoding="utf-8")
        evidence = list(evidence_of(results / lane))
        if evidence:
            (target / f"{lane}-evidence.txt").write_text("\n".join(evidence) + "\n", encoding="utf-8")
    for log in sorted(results.glob("*.log")):
        (target / f"{log.stem}-evidence.txt").write_text("\n".join(evidence_in(log)) + "\n", encoding="utf-8")
    for kept in sorted((*results.glob("*/*.report.json"), *results.glob("*/*.svg"))):
        shutil.copy2(kept, target / f"{kept.parent.name}-{kept.name}")
    host = results / "host.txt"
    for kept in (host, results / LOADERS):
        if kept.exists():
            shutil.copy2(kept, target / kept.name)
    costs = costs_of(found)
    if costs:
        note = " · ".join(host_line(host.read_text(encoding="utf-8") if host.exists() else ""))
        (target / "cost.svg").write_text(cost_picture(costs, note=note), encoding="utf-8")
    starts = starts_of(results, found)
    compared = picture_of_both(starts)
    if compared:
        (target / "starts.svg").write_text(compared + "\n", encoding="utf-8")
    tables = [*starts_table(starts), *loader_table(results / LOADERS)]
    pictures = pictures_of(results)
    text = readme(target.name, found, host, bool(costs), pictures, tables)
    (target / "README.md").write_text(text, encoding="utf-8")


def read_steps(results: Path) -> list[dict[str, Any]]:
    """Every step's facts, in the order in which they began."""
    read = (json.loads(path.read_text(encoding="utf-8")) for path in results.glob("*/*.json"))
    steps = [facts for facts in read if isinstance(facts, dict) and "step" in facts]
    return sorted(steps, key=lambda facts: str(facts["began"]))


def evidence_of(folder: Path) -> Iterable[str]:
    """The lines of a lane's logs that are evidence, each log under its name."""
    for log in sorted(folder.glob("*.log")):
        lines = evidence_in(log)
        if lines:
            yield f"== {log.name}"
            yield from lines


def evidence_in(log: Path) -> list[str]:
    lines = log.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if _EVIDENCE.search(line)][-_MOST_LINES:]


def costs_of(steps: Sequence[Facts]) -> list[Cost]:
    """For each lane with a memory step: what the weight cache holds, and seconds where they were measured."""
    costs = []
    for lane, name in (
        ("eight", "8B shape"),
        ("small", "0.6B shape"),
        ("tp2", "8B on two GPUs, each"),
    ):
        of_lane = {facts["step"]: facts for facts in steps if facts["lane"] == lane}
        memory = next(
            (of_lane[s] for s in ("memory-warm", "memory") if of_lane.get(s, {}).get("overhead")), None
        )
        if memory is None or memory["overhead"][0]["overhead_bytes"] <= 0:  # without a GPU nothing is held
            continue
        timing = (
            {facts["step"]: facts for facts in steps if facts["lane"] == "timing"} if lane == "eight" else {}
        )
        restart = timing.get("restart") or of_lane.get("restart")
        costs.append(
            Cost(
                model=name,
                weights_bytes=int(memory["overhead"][0]["weights_bytes"]),
                overhead_bytes=int(memory["overhead"][0]["overhead_bytes"]),
                disk_seconds=_load_seconds(timing.get("disk-dropped")),
                warm_disk_seconds=_load_seconds(timing.get("disk-warm") or of_lane.get("disk-warm")),
                mapped_seconds=_load_seconds(restart),
            )
        )
    return costs


def _load_seconds(facts: Facts | None) -> float | None:
    """vLLM's own `Model loading took … seconds`: from disk it reads, from the weight cache it maps."""
    found = ((facts or {}).get("log") or {}).get("load_seconds")
    return None if found is None else float(found)


def pictures_of(results: Path) -> dict[str, list[str]]:
    """By lane and step the pictures beside the tables: starts, and first tokens under load."""
    found: dict[str, list[str]] = {}
    for path in sorted(results.glob("*/*.svg")):
        found.setdefault(path.parent.name, []).append(f"{path.parent.name}-{path.name}")
    return found


def readme(
    name: str,
    steps: Sequence[Facts],
    host: Path,
    picture: bool,
    pictures: Mapping[str, Sequence[str]] = MappingProxyType({}),
    tables: Sequence[str] = (),
) -> str:
    """Tables of what there is; sentences on what it means are added by hand."""
    lines = [f"# {name}", ""]
    if host.exists():
        lines += ["    " + line for line in host.read_text(encoding="utf-8").splitlines()] + [""]
    if picture:
        lines += ["![What does keeping the weights cost?](cost.svg)", ""]
    lines += [
        "## Starts and drills",
        "",
        "| lane | step | as expected | outcome | s | of it weights | beside |",
    ]
    lines += ["|---|---|---|---|---:|---:|---|"]
    lines += [_step_row(facts) for facts in steps]
    lines += bench_tables(steps)
    lines += load_tables(steps)
    lines += nursery_lines(steps)
    lines += tables
    for lane in sorted(pictures, key=lambda name: _RANK.get(name, 9)):
        for file in pictures[lane]:
            lines += ["", f"![{file.removesuffix('.svg')}]({file})"]
    rows = [(facts, row) for facts in steps for row in facts.get("rows") or ()]
    if rows:
        lines += ["", "## Memory, MiB", "", "| lane | step | GPU | | planned | measured | off |"]
        lines += ["|---|---|---|---|---:|---:|---:|"]
        lines += [
            f"| {facts['lane']} | {facts['step']} | {row['rank']} | {row['what']} | {row['planned_mib']} "
            f"| {row['measured_mib']} | {row['off_percent']:+.1f} % |"
            for facts, row in rows
        ]
    beside = list(_beside_rows(steps))
    if beside:
        lines += ["", "## Engine beside its KV cache, MiB on one GPU", ""]
        lines += [
            "CUDA graphs: vLLM's own figure, what the whole GPU lost meanwhile. Other lanes on it count in"
        ]
        lines += ["it; where that makes it impossible, or the log is not there, the cell is empty.", ""]
        lines += ["| lane | settings | engine | KV cache | CUDA graphs | rest |"]
        lines += ["|---|---|---:|---:|---:|---:|"]
        lines += beside
    wrong = [facts for facts in steps if not facts["ok"]]
    if wrong:
        lines += ["", "## Not as expected", ""]
        lines += [f"- {facts['lane']} {facts['step']}: {why_not(facts)}" for facts in wrong]
    return "\n".join(lines) + "\n"


def _beside_rows(steps: Sequence[Facts]) -> Iterable[str]:
    """What the plan's constants stand for: an engine less its KV cache and its graphs."""
    for facts in steps:
        for row in facts.get("rows") or ():
            if row["what"] == "engine" and facts.get("plan"):
                kv = int(facts["plan"]["kv_cache"]) // MIB
                yield _beside(facts["lane"], facts["step"], row["measured_mib"], kv, facts.get("log") or {})
        for name, point in (facts.get("points") or {}).items():
            if point.get("engine_mib"):
                yield _beside(facts["lane"], name, point["engine_mib"], point["kv_mib"], point["log"])


def _beside(lane: str, name: str, engine: int, kv: int, log: Mapping[str, float]) -> str:
    graphs = round(log["graphs_gib"] * 1024) if "graphs_gib" in log else None
    if graphs is None or not 0 <= graphs <= engine - kv:
        return f"| {lane} | {name} | {engine} | {kv} |  |  |"
    return f"| {lane} | {name} | {engine} | {kv} | {graphs} | {engine - kv - graphs} |"


def why_not(facts: Facts) -> str:
    """The shortest account of a step that did not come out as expected."""
    if facts.get("error"):
        return str(facts["error"])
    found = [f"{f['name']}: {f['found']}" for f in facts.get("not_as_expected") or ()]
    off = [f"{r['what']} {r['off_percent']:+.1f} %" for r in facts.get("rows") or () if not r["ok"]]
    other = ["the greedy answer is another one"] if facts.get("same_answer") is False else []
    return "; ".join(found + off + other) or str(
        facts.get("sentence") or facts.get("outcome") or "see the JSON file"
    )


def host_line(text: str) -> list[str]:
    """Kernel, GPU and date of `host.txt`, for a picture's foot."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    gpu = next((line.split(",")[2].strip() for line in lines if line.count(",") >= 4), "")
    date = next((line[:10] for line in lines if re.match(r"\d{4}-\d\d-\d\dT", line)), "")
    return [part for part in (gpu, "vLLM 0.33.0", date) if part]


def _step_row(facts: Facts) -> str:
    seconds = facts.get("seconds")
    if isinstance(seconds, Mapping):
        shown = seconds.get("first token") or seconds.get("ready")
    else:
        shown = seconds if seconds is not None else facts.get("ready_seconds")
    weights = _load_seconds(facts)
    cells = (
        facts["lane"],
        facts["step"],
        "yes" if facts["ok"] else "no",
        facts.get("outcome") or "",
        "" if shown is None else f"{float(shown):.1f}",
        "" if weights is None else f"{weights:.2f}",
        ", ".join(facts.get("other_lanes") or ()),
    )
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


if __name__ == "__main__":
    main()
