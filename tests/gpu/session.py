"""A session on the GPU host: lanes of steps, each lane on its own GPUs, resumable step by step.

    python3 -m gpu.session lane NAME --results DIR [STEP…]     run a lane's steps that have no result yet
    python3 -m gpu.session table --results DIR                 what there is

In: a prepared host (`prepare.sh`). Out: one JSON file for each step under DIR/NAME. A step whose file is
there is not run again: delete the file to repeat it. A lane that is killed goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpu import steps, steps_load, steps_small, steps_starts
from gpu.gpus import read_gpus
from gpu.lane import Lane, used_uuids, write_json
from gpu.steps import Step

HERE = Path(__file__).parent
# Sizes for few people; by default vLLM 0.33 captures graphs for about fifty, up to 512.
FEW_SIZES = "engine.arguments.cudagraph-capture-sizes=[1,2,4,8,16,32]"
AOT = "engine.environment.VLLM_USE_MEGA_AOT_ARTIFACT=1"
STEPS: Mapping[str, Step] = {
    "up": steps.up,
    "memory": steps.memory_now,
    "restart": steps.restart,
    "restart-2": steps.restart,
    "memory-warm": steps.memory_now,
    "recreate": steps.drill("engine-recreate"),
    "engine-kill": steps.drill("engine-kill"),
    "daemon-kill": steps.drill("daemon-kill"),
    "cold-start": steps.drill("cold-start"),
    "kill-weight-cache": steps.kill_weight_cache,
    "two-engines": steps.two_engines,
    "await": steps.await_engine,
    "disk-warm": steps.from_disk(dropped=False),
    "disk-dropped": steps.from_disk(dropped=True),
    "nursery": steps_starts.nursery,
    "bench": steps_starts.bench("stock,restart", repeat=5),
    "cold-up": steps.cold_up,
    "cold-up-2": steps.cold_up,
    "cold-up-3": steps.cold_up,
    "bench-cold": steps_starts.bench("stock,cold", repeat=5, beside=False),
    "bench-tp2": steps_starts.bench("stock,restart", repeat=2),
    "restart-3": steps.restart,
    "sizes": steps_starts.levers(FEW_SIZES),
    "sizes-restart": steps.restart,
    "aot": steps_starts.levers(AOT),
    "aot-restart": steps.restart,
    "both": steps_starts.levers(FEW_SIZES, AOT, proven_by={AOT: "aot-restart"}),
    "both-restart": steps.restart,
    "bench-both": steps_starts.bench("stock,restart", repeat=5),
    "load-roll": steps_load.under_load("roll", seconds=20, limit=420),
    "load-restart": steps_load.under_load("restart", seconds=16, limit=150),
    "standby": steps.up_with("engine.standby=true"),
    "standby-memory": steps_load.pair_memory,
    "load-standby-kill": steps_load.under_load("standby-kill", seconds=16, limit=180),
    "kill-rank": steps.kill_rank,
    "alone": steps.alone,
    "down": steps.down,
    "pid-fault": steps_small.pid_fault,
    "pid-collision": steps_small.pid_collision,
    "pid-avoided": steps_small.pid_avoided,
    "pid-numbers": steps_small.pid_numbers,
    "wrong-content": steps_small.wrong_content,
    "memory-points": steps_small.memory_points,
    "fp8-block": steps_small.fp8("small-fp8"),
    "fp8-tensor": steps_small.fp8("small-fp8-tensor"),
    "side-by-side": steps_small.side_by_side,
    "both-on-one": steps_small.both_on_one,
    "swapped": steps_small.swapped,
}
# The committed files are for GPUs of 80 GiB; vLLM takes its share of what is really there.
H200 = ("gpu.memory_gib=139", "engine.max_model_len=8192")
# A lane whose first `up` fails goes on without; what is newest stands here.
TRIED = "weight_cache.fork_ranks=true"
WITHOUT = "weight_cache.fork_ranks=false"
# `up` restarts an engine whose settings changed; with it on `up` rolls, which takes three times as long.
NO_ROLL = "engine.roll=false"
COLD_STEPS = "bench-cold cold-up cold-up-2 cold-up-3 daemon-kill cold-start recreate kill-weight-cache down"
# By lane: environment, GPUs, port, model, settings (`both`: on the CPU too), and the steps in the order of
# their value. `after`: lanes that end before it begins.
LANES: Mapping[str, Mapping[str, Any]] = {
    "eight": {
        "environment": "gpu",
        "gpus": (0,),
        "port": 8080,
        "model": "eight",
        "settings": (*H200, "engine.kv_cache.gib=24"),
        "both": (TRIED, NO_ROLL),
        "steps": "up memory nursery restart restart-2 restart-3 memory-warm engine-kill recreate two-engines "
        "await daemon-kill kill-weight-cache",
    },
    "roll": {
        "environment": "gpu",
        "gpus": (1,),
        "port": 8081,
        "model": "steady",
        "settings": (*H200, "engine.kv_cache.gib=8"),
        "both": (TRIED,),
        "steps": "up memory load-roll load-restart standby standby-memory load-standby-kill down",
    },
    "small": {
        "environment": "gpu",
        "gpus": (1,),
        "port": 8083,
        "model": "small",
        "settings": (*H200, "engine.kv_cache.gib=4"),
        "both": (TRIED, NO_ROLL),
        "steps": "up memory restart memory-warm two-engines fp8-tensor pid-fault pid-collision wrong-content "
        "fp8-block side-by-side both-on-one pid-avoided memory-points down",
    },
    "tp2": {
        "environment": "gpu-tp2",
        "gpus": (0, 1),
        "port": 8082,
        "model": "eight",
        "settings": (*H200, "engine.kv_cache.gib=24"),
        "both": (TRIED, NO_ROLL),
        "steps": "up memory nursery restart memory-warm pid-numbers disk-warm kill-rank engine-kill recreate "
        "swapped down",
    },
    # Beside little else: on the stack of `eight`, stock engines on the same GPU.
    "bench": {"like": "eight", "after": ("eight",), "steps": "bench down"},
    # The same, with starts of everything from nothing: each takes the weights away.
    "cold": {"like": "eight", "after": ("eight", "bench"), "steps": COLD_STEPS},
    # A stack of its own: each lever is a new container, which the comparison must not see.
    "levers": {
        "environment": "gpu",
        "gpus": (1,),
        "port": 8084,
        "model": "eight",
        "settings": (*H200, "engine.kv_cache.gib=4"),
        "both": (TRIED, NO_ROLL),
        "after": ("tp2",),
        "steps": "up nursery restart restart-2 sizes sizes-restart aot aot-restart both bench-both down",
    },
    # Alone on the host, on the stack of `tp2`.
    "tp2-bench": {
        "like": "tp2",
        "after": ("tp2", "bench", "levers", "roll", "small"),
        "steps": "bench-tp2 down",
    },
    # Alone on the host, on the stack of `eight`: weights from disk, page cache warm and dropped.
    "timing": {
        "like": "eight",
        "after": ("eight", "bench"),
        "steps": "alone restart disk-warm disk-dropped",
    },
}


def main() -> None:
    arguments = make_parser().parse_args()
    arguments.run(arguments)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, required=True)
    commands = parser.add_subparsers(required=True)
    lane = commands.add_parser("lane")
    lane.add_argument("name", choices=sorted(LANES))
    lane.add_argument("steps", nargs="*")
    lane.add_argument("--cpu", action="store_true", help="rehearse with the cpu environment and its images")
    lane.set_defaults(run=run_lane)
    table = commands.add_parser("table")
    table.set_defaults(run=print_table)
    return parser


def make_lane(name: str, results: Path, *, cpu: bool) -> Lane:
    wanted = LANES[name]
    like = str(wanted.get("like", name))
    wanted = {**LANES[like], **wanted}
    models = Path(os.environ.get("GPU_SESSION_MODELS", "/tmp/models"))
    project = f"g-{like}"
    rehearsed = ("engine.kv_cache.gib=0.1", f"parallel.tensor={len(wanted['gpus'])}")
    both = wanted["both"]
    if gone_without(results, project).exists():
        both = tuple(WITHOUT if setting == TRIED else setting for setting in both)
    return Lane(
        name=name,
        project=project,
        environment="cpu" if cpu else wanted["environment"],
        gpus=wanted["gpus"],
        port=wanted["port"],
        model=str(models / wanted["model"]),
        settings=(*(rehearsed if cpu else wanted["settings"]), *both),
        results=results,
        override=Path(f"/tmp/override-{project}.yaml"),
        models=models,
    )


def gone_without(results: Path, project: str) -> Path:
    """Its existence says that this project goes without `TRIED` from now on."""
    return results / f"{project}.without"


def run_lane(arguments: argparse.Namespace) -> None:
    folder = arguments.results / arguments.name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pid").write_text(str(os.getpid()))
    try:
        await_lanes(folder, LANES[arguments.name].get("after", ()))
        lane = prepared_lane(arguments)
        for name in arguments.steps or LANES[lane.name]["steps"].split():
            if (lane.folder / "stop").exists():
                say(lane, f"asked to stop before {name}")
                break
            if (lane.folder / f"{name}.json").exists():
                continue
            facts = run_step(lane, name)
            keep_logs(lane)
            if name != "up" or facts.get("exit") == 0:
                continue
            set_aside(lane, "up", "up-failed")
            if TRIED not in lane.settings:
                break  # nothing after it would tell anything; the next call tries again
            gone_without(lane.results, lane.project).touch()
            say(lane, f"once more, with {WITHOUT}")
            lane = prepared_lane(arguments)
            facts = run_step(lane, "up")
            keep_logs(lane)
            if facts.get("exit") != 0:
                set_aside(lane, "up", "up-failed-again")
                break
    finally:
        (folder / "pid").unlink()


def prepared_lane(arguments: argparse.Namespace) -> Lane:
    """With its override file and its networks."""
    lane = make_lane(arguments.name, arguments.results, cpu=arguments.cpu)
    if lane.on_gpu and len(lane.gpus) == 1:
        # On a host with fewer GPUs lanes share them; their plans say whether that fits.
        lane = replace(lane, gpus=(lane.gpus[0] % len(read_gpus()),))
    if lane.on_gpu and lane.gpus != tuple(range(len(lane.gpus))):
        named = f"gpu.devices={','.join(used_uuids(lane))}"
        lane = replace(lane, settings=(*lane.settings, named))
    make_override(lane)
    return lane


def await_lanes(folder: Path, names: Sequence[str]) -> None:
    """Until none of them runs. Meanwhile this one is not beside anybody."""
    waiting = folder / "waiting"
    waiting.touch()
    while any((folder.parent / name / "pid").exists() for name in names):
        if (folder / "stop").exists():
            break
        time.sleep(1.0)
    waiting.unlink()


def set_aside(lane: Lane, step: str, name: str) -> None:
    (lane.folder / f"{step}.json").replace(lane.folder / f"{name}.json")


def run_step(lane: Lane, name: str) -> Mapping[str, Any]:
    """One step and its file; what breaks is written down and the lane goes on."""
    began, busy = time.time(), other_lanes(lane)
    say(lane, f"{name} …")
    try:
        facts = STEPS[name](lane)
    except Exception as error:
        facts = {"ok": False, "error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
    seconds = round(time.time() - began, 1)
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began))
    busy = sorted({*busy, *other_lanes(lane)})
    write_json(
        lane.folder / f"{name}.json",
        {"step": name, "lane": lane.name, "began": at, "step_seconds": seconds, "other_lanes": busy, **facts},
    )
    say(lane, f"{name}: {'ok' if facts['ok'] else 'NOT AS EXPECTED'} ({seconds} s)")
    return facts


def other_lanes(lane: Lane) -> list[str]:
    return sorted(
        path.parent.name
        for path in lane.results.glob("*/pid")
        if path.parent != lane.folder and not path.with_name("waiting").exists()
    )


def make_override(lane: Lane) -> None:
    """The project's override file and network; on the CPU the network alone, to rehearse it."""
    options = ["--plain"] if not lane.on_gpu else ["--gpus", ",".join(str(index) for index in lane.gpus)]
    options += ["--site", os.environ.get("GPU_SESSION_SITE", "/opt/site")]
    select = Path("/tmp/select")
    if lane.on_gpu and select.exists():
        options += ["--select", select.read_text().strip()]
    if NO_ROLL in lane.settings:
        options += ["--no-surge"]
    _host("override", "--project", lane.project, "--out", str(lane.override), *options)
    image = [] if lane.on_gpu else ["--image", cpu_image()]
    _host("network", "--project", lane.project, "--port", str(lane.port), *image)


def remove_networks(lane: Lane) -> None:
    _host("network", "--project", lane.project, "--remove")


def cpu_image() -> str:
    from gpu.host import ROOT
    from warmplan import read_pins

    return f"warmstack/vllm:{read_pins(ROOT / 'compose' / 'pins.yaml').vllm('cpu')}-cpu"


def _host(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "gpu.host", *arguments], check=True, stdin=subprocess.DEVNULL)


def keep_logs(lane: Lane) -> None:
    """The containers' logs as they are now, over those of the step before."""
    for service in ("vllm", "weight-cache"):
        container = lane.docker_project.container(service)
        if container is not None:
            text = lane.docker_project.docker.logs(container.id)
            (lane.folder / f"{service}.log").write_text(text, encoding="utf-8")


def print_table(arguments: argparse.Namespace) -> None:
    for path in sorted(arguments.results.glob("*/*.json"), key=lambda found: found.stat().st_mtime):
        facts = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(facts, dict) and "step" in facts:
            print(line_of(facts))


def line_of(facts: Mapping[str, Any]) -> str:
    """One step in one line."""
    mark = "ok " if facts["ok"] else "NO "
    parts = [f"{facts['lane']}/{facts['step']}", f"{facts['step_seconds']} s"]
    for key in ("outcome", "reason", "sentence", "error", "not_as_expected"):
        if facts.get(key):
            parts.append(f"{key} {str(facts[key])[:110]}")
    parts += [
        f"{row['what']} {row['planned_mib']}/{row['measured_mib']} {row['off_percent']:+.1f}%"
        for row in facts.get("rows", [])
    ]
    seconds = facts.get("seconds")
    if isinstance(seconds, dict):
        parts.append(" ".join(f"{name} {value:.1f}" for name, value in seconds.items()))
    if "forked" in facts:
        parts.append("forked" if facts["forked"] else "from the command line")
    parts += [
        f"{one['kind']} {one['median_seconds']:.1f} ({one['of_first']:.2f}, n={len(one['seconds'])})"
        for one in (facts.get("bench") or {}).get("series", ())
    ]
    if facts.get("counts"):
        parts.append(", ".join(f"{name} {count}" for name, count in facts["counts"].items()))
    if facts.get("next_first_token_seconds") is not None:
        parts.append(f"next first token {facts['next_first_token_seconds']:.2f}")
    log = facts.get("log") or {}
    parts += [f"{key} {log[key]:g}" for key in ("load_seconds", "graphs_gib") if key in log]
    return mark + "  ".join(parts)


def say(lane: Lane, text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {lane.name}: {text}", flush=True)


if __name__ == "__main__":
    main()
