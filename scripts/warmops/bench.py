"""`bench`: stock `vllm serve` from disk beside the warm restart, alternating, in one run.

In: a running project. Out: a report with both series, their medians and ratio, and memory. Both engines use
one image, one set of flags and one client path: the gateway, which holds the request until the engine
answers. Each series is measured from the moment at which the engine before it has stopped to the first
token.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from warmops.answers import Answer
from warmops.changes import ENGINE
from warmops.console import failure, heading, say
from warmops.docker import Compose
from warmops.drill_plan import Finding
from warmops.drills import build_report, show, utc_now, write_report
from warmops.evidence import LogLine, StartEvidence
from warmops.processes import memory_bytes, memory_of_project
from warmops.project import Project, Remembered
from warmops.project_lock import alone
from warmops.report import Bench, Run, to_json
from warmops.restart import answer_now, require_weight_cache
from warmops.starts import EngineFailed, HeldRequest, Recycling, measure_start, start_engine, stop_engine
from warmops.target import add_target, find_target
from warmops.waiting import await_serving

STOCK = "vllm-stock"
PAGE_CACHE = "warm: never dropped, and one unmeasured stock start read the checkpoint before"
_FAST_START = re.compile(r"^--(load-format|model-loader-extra-config)=")
_FROM_DISK = re.compile(r"Loading weights took")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="starts of each kind (5)")


def run(arguments: argparse.Namespace) -> int:
    if arguments.repeat < 1:
        raise failure(f"repeat: {arguments.repeat} is not a count", "give 1 or more", exit_code=2)
    project, settings = find_target(arguments)
    if settings.standby:
        hint = "make up with engine.standby: false first"
        raise failure("a standby would answer for the engine that is measured", hint, exit_code=1)
    with alone(project, "bench"):
        return _bench(project, settings, arguments)


def _bench(project: Project, settings: Remembered, arguments: argparse.Namespace) -> int:
    require_weight_cache(project)
    expected = answer_now(project, settings)
    started_at = utc_now()
    runs: list[Run] = []
    stock = StockEngine.make(project, settings)
    try:
        heading("stock engine: one start that is not measured, so that both kinds find the page cache warm")
        stop_engine(project)
        stock.start()
        for repetition in range(1, arguments.repeat + 1):
            heading(f"start {repetition} of {arguments.repeat} of each kind")
            runs.append(_warm_run(project, settings, stock, repetition, expected))
            stop_engine(project)
            runs.append(_stock_run(stock, repetition, expected))
    finally:
        stock.remove()
        start_engine(project)
    await_serving(project, settings)
    report = build_report(project, settings, runs, started_at=started_at, bench=summarise(runs, expected))
    folder = write_report(report, project.reports)
    if arguments.json:
        print(json.dumps(to_json(report), indent=2, ensure_ascii=False))
    show(report, folder)
    return 0 if report.passed else 1


def summarise(runs: list[Run], expected: str | None) -> Bench | None:
    """Both series; None when one of them has no measured start."""
    series = {
        kind: tuple(
            run.seconds["first token"] for run in runs if run.kind == kind and "first token" in run.seconds
        )
        for kind in ("stock", "warm")
    }
    if not all(series.values()):
        return None
    same = expected is not None and all(run.answer == expected for run in runs)
    return Bench(
        page_cache=PAGE_CACHE, stock_seconds=series["stock"], warm_seconds=series["warm"], same_answer=same
    )


@dataclass(frozen=True, kw_only=True)
class StockEngine:
    """`vllm serve` as vLLM ships it, in a container of its own under the engine's name in the network."""

    project: Project
    settings: Remembered
    compose: Compose

    @classmethod
    def make(cls, project: Project, settings: Remembered) -> StockEngine:
        """Create the container, not started; one that an interrupted bench left behind is removed first."""
        file = project.folder / "bench.yaml"
        config = stock_config(project.compose.config(), project.name)
        file.write_text(json.dumps(config, indent=2), encoding="utf-8")
        compose = project.docker.compose(
            project=f"{project.name}-bench", file=file, project_directory=project.folder
        )
        compose.run("down", "--remove-orphans", quiet=True)
        compose.run("up", "--no-start")
        return cls(project=project, settings=settings, compose=compose)

    @property
    def container(self) -> str:
        found = self.compose.container(STOCK)
        if found is None:
            raise EngineFailed("the stock engine's container is gone")
        return found

    def start(self) -> tuple[float, float, Answer | None, str | None]:
        """Start it while no engine lives: begin and first token in unix seconds, the answer, or an error."""
        key = self.project.api_key()
        begun = time.time()
        request = HeldRequest(self.settings, key)
        request.start()
        self.project.docker.run("start", self.container)
        answer = request.result()
        if answer is None:
            return begun, begun, None, request.error
        return begun, answer.sent_at + answer.first_token_seconds, answer, None

    def stop(self) -> None:
        self.project.docker.run("stop", self.container)

    def log(self, since: float) -> list[LogLine]:
        told = self.project.docker.capture(
            "logs", "--since", f"{since:.6f}", self.container, merged=True, check=False
        )
        return [LogLine(text=line) for line in told.stdout.splitlines()]

    def remove(self) -> None:
        self.compose.run("down", "--remove-orphans", "--timeout", "30")


def stock_config(config: Mapping[str, Any], project: str) -> dict[str, Any]:
    """The engine's service of a Compose file without all that makes it a fast start."""
    kept = (
        "image",
        "user",
        "read_only",
        "cap_drop",
        "security_opt",
        "environment",
        "tmpfs",
        "volumes",
        "deploy",
        "devices",
    )
    engine = config["services"][ENGINE]
    service = {name: engine[name] for name in kept if name in engine}
    command = [part for part in engine["command"] if not _FAST_START.match(part)]
    service |= {
        "entrypoint": ["vllm", "serve"],
        "command": command,
        "stop_grace_period": engine.get("stop_grace_period", "30s"),
        "shm_size": config["services"]["weight-cache"].get("shm_size", "1gb"),
    }
    volumes = {
        mount["source"]: {"external": True, "name": config["volumes"][mount["source"]]["name"]}
        for mount in service.get("volumes", [])
        if mount["type"] == "volume"
    }
    if "network_mode" in engine:  # an override's: then nobody resolves the engine's name in a network
        service["network_mode"] = engine["network_mode"]
        return {"services": {STOCK: service}, "volumes": volumes}
    service["networks"] = {"backend": {"aliases": [ENGINE]}}
    networks = {"backend": {"external": True, "name": f"{project}_backend"}}
    return {"services": {STOCK: service}, "networks": networks, "volumes": volumes}


def _warm_run(
    project: Project, settings: Remembered, stock: StockEngine, repetition: int, expected: str | None
) -> Run:
    start = measure_start(
        project, settings, Recycling(take_away=stock.stop, bring_back=lambda: start_engine(project))
    )
    hit = start.evidence.outcome == "hit"
    found = start.evidence.outcome + (f" ({start.evidence.reason})" if start.evidence.reason else "")
    answer = start.answer.text if start.answer is not None else None
    stopped = start.moments["stopped"]
    measured = {"ready": "ready", "first-token": "first token"}
    seconds = {name: start.moments[key] - stopped for key, name in measured.items() if key in start.moments}
    return Run(
        kind="warm",
        repetition=repetition,
        evidence=start.evidence,
        findings=(
            Finding(name="engine start", expected="hit", found=found, ok=hit),
            _answered(answer, expected),
        ),
        phases=start.phases,
        seconds=seconds,
        memory_bytes=memory_of_project(project),
        answer=answer,
    )


def _stock_run(stock: StockEngine, repetition: int, expected: str | None) -> Run:
    begun, first_token, answer, error = stock.start()
    say(
        f"stock engine: first token after {first_token - begun:.2f} s" if answer else f"stock engine: {error}"
    )
    from_disk = any(_FROM_DISK.search(line.text) for line in stock.log(begun))
    found = "from disk" if from_disk else "no sign of a load from disk in its log"
    text = answer.text if answer is not None else None
    return Run(
        kind="stock",
        repetition=repetition,
        evidence=StartEvidence(
            outcome="unknown", reason="stock engine: loads from disk, asks no weight cache"
        ),
        findings=(
            Finding(name="weights", expected="from disk", found=found, ok=from_disk),
            _answered(text, expected),
        ),
        phases=(),
        seconds={"first token": first_token - begun} if answer is not None else {},
        memory_bytes={STOCK: memory_bytes(stock.project.docker, stock.container)},
        answer=text,
    )


def _answered(answer: str | None, expected: str | None) -> Finding:
    """Whether it answered. Stock kernels may round otherwise: the same text is reported, not demanded."""
    same = "same as before the bench" if answer == expected else repr(answer)
    return Finding(name="answer", expected="an answer", found=same, ok=bool(answer))
