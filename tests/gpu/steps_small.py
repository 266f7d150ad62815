"""Steps of the small model's lane: PID numbers, wrong content, fp8, two projects on one host, memory points.

In: a lane whose stack is up. Out: facts with `ok`, as `steps`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpu import memory
from gpu.extra import Extra, ExtraEngines, extra_engines
from gpu.lane import Lane, container_mib, engine_log, snapshot, up_arguments, used_uuids, warm
from gpu.steps import START_SECONDS, UP_SECONDS, Facts, _read
from warmops.project import Project, read_remembered

HERE = Path(__file__).parent
STARTS = int(os.environ.get("GPU_SESSION_STARTS", "20"))
AT_ONCE = min(STARTS, 5)
EAGER = ("--enforce-eager",)
# A second engine of the same plan beside the first needs no large cache to be told apart from it.
SMALL_KV = {"--kv-cache-memory-bytes": f"--kv-cache-memory-bytes={1024**3}"}
# The port of a step before may still be in use: each has its own, beyond those of the lanes.
FP8_PORTS = {"small-fp8": 10, "small-fp8-tensor": 20}
_PROCESS = re.compile(r"\((?:EngineCore|Worker)[^)]* pid=(\d+)\)")
_MISMATCH = re.compile(r"WeightCacheKey mismatch on fields: .*")


def pid_fault(lane: Lane) -> Facts:
    """CUDA IPC alone, in two PID namespaces: equal numbers fail, other numbers map."""
    if not lane.on_gpu:
        return {"ok": True, "skipped": "no GPU"}
    done = subprocess.run(
        [sys.executable, str(HERE / "cuda_ipc.py")],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**_environment(), "CUDA_VISIBLE_DEVICES": str(lane.gpus[0])},
    )
    facts = _read(done.stdout.splitlines()[-1] if done.stdout.strip() else "")
    importers = facts.get("importers", {})
    equal, other = importers.get("500", {}).get("outcome", ""), importers.get("900", {}).get("outcome", "")
    ok = "invalid device context" in equal and other.startswith("maps, value 7")
    return {"ok": ok, **facts, "stderr": done.stderr[-800:]}


def pid_collision(lane: Lane) -> Facts:
    """vLLM's engine made to start on the number of the weight cache's process: refused, with the sentence."""
    status = lane.docker_project.supervisor_status() or {}
    (rank, *_) = status["rank_pids"]
    old = (_engine_environment(lane).get("PYTHONPATH") or "").strip(":")
    extra = Extra(
        name="collide",
        arguments=EAGER,
        replaced=SMALL_KV if lane.on_gpu else {},
        environment={
            "COLLIDE_PID": str(rank),
            "PYTHONPATH": f"/collide:{old or '/opt/warmstack'}",
            "WARMSTACK_MAX_RESTARTS": "1",
        },
        mounts=((str(HERE / "collide"), "/collide"),),
    )
    with extra_engines(lane, extra) as extras:
        state = extras.await_all(START_SECONDS)["collide"]
        evidence, log = extras.evidence("collide"), extras.log("collide")
    numbers = _numbers(log)
    expected = "miss" if lane.on_gpu else "hit"  # shared memory does not care about numbers
    return {
        "ok": evidence.outcome == expected and rank in numbers,
        "state": state,
        "exporter": rank,
        "engine": sorted(numbers),
        "outcome": evidence.outcome,
        "reason": evidence.reason,
        "after_miss": evidence.after_miss,
        "sentence": evidence.sentence,
        "counter": [line for line in log if line.startswith("collide:")],
    }


def pid_avoided(lane: Lane) -> Facts:
    """Twenty starts of the engine as the stack starts it, several at a time: each a hit, no number shared."""
    starts: list[Facts] = []
    while len(starts) < STARTS:
        names = [
            f"start-{number}" for number in range(len(starts) + 1, min(len(starts) + AT_ONCE, STARTS) + 1)
        ]
        extras = [
            Extra(name=name, arguments=EAGER, replaced=SMALL_KV if lane.on_gpu else {}) for name in names
        ]
        with extra_engines(lane, *extras) as running:
            states = running.await_all(START_SECONDS)
            starts += [_start_facts(lane, running, name, states[name]) for name in names]
        (lane.folder / "pid-avoided.part.json").write_text(json.dumps(starts, indent=1))
    return {
        "ok": all(start["outcome"] == "hit" and not start["shared_numbers"] for start in starts),
        "starts": len(starts),
        "hits": sum(start["outcome"] == "hit" for start in starts),
        "shared_numbers": sum(bool(start["shared_numbers"]) for start in starts),
        "each": starts,
    }


def _start_facts(lane: Lane, running: ExtraEngines, name: str, state: str) -> Facts:
    ranks = set((lane.docker_project.supervisor_status() or {}).get("rank_pids", ()))
    evidence = running.evidence(name)
    inside = {process.pid for process in running.processes(name)} if state == "ready" else set()
    moved = evidence.mark("pids-moved")
    return {
        "state": state,
        "outcome": evidence.outcome,
        "reason": evidence.reason,
        "exporter": sorted(ranks),
        "engine": sorted(_numbers(running.log(name))),
        "shared_numbers": sorted((inside | _numbers(running.log(name))) & ranks),
        "moved_past": moved.fields.get("past") if moved else None,
        "moved_seconds": moved.fields.get("seconds") if moved else None,
    }


def wrong_content(lane: Lane) -> Facts:
    """A checkpoint of the same layout from another seed: `up`, an engine of it and vLLM refuse."""
    other = str(lane.models / "small-other")
    code, _, _ = warm(lane, "up", *up_arguments(lane, other), log="wrong-content", seconds=120)
    explained, _, _ = warm(lane, "explain", "--model", other, "--json", log="wrong-content", seconds=60)
    held, wanted = lane.plan(), lane.plan(model=other)
    digest = str(wanted.model.digest)
    common = {
        "arguments": EAGER,
        "replaced": {**(SMALL_KV if lane.on_gpu else {}), "--revision=": f"--revision={digest}"},
        "mounts": ((other, "/model"),),
    }
    planned = {
        "WARMSTACK_IDENTITY": wanted.identity.value,
        "WARMSTACK_MODEL_DIGEST": digest,
        "WARMSTACK_MODEL": other,
        "WARMSTACK_MAX_RESTARTS": "1",
    }
    supervised = Extra(name="other-planned", environment=planned, **common)  # type: ignore[arg-type]
    # Without our entry point: the folder of the sockets is forced on it, vLLM alone decides.
    bare = Extra(name="other-bare", entrypoint=("vllm", "serve"), **common)  # type: ignore[arg-type]
    with extra_engines(lane, supervised, bare) as extras:
        states = extras.await_all(START_SECONDS)
        seen, said = extras.evidence("other-planned"), extras.log("other-bare")
    mismatch = [found[0] for line in said if (found := _MISMATCH.search(line))]
    mapped = any("Mapped" in line and "tensors" in line for line in said)
    return {
        "ok": code == 1
        and explained == 1
        and (seen.outcome, seen.reason) == ("miss", "mismatch")
        and bool(mismatch)
        and not mapped,
        "identities": [held.identity.value, wanted.identity.value],
        "up_exit": code,
        "explain_exit": explained,
        "states": states,
        "planned": {"outcome": seen.outcome, "reason": seen.reason, "sentence": seen.sentence},
        "bare": mismatch[:1],
        "mapped": mapped,
    }


def memory_points(lane: Lane) -> Facts:
    """What an engine takes beside its KV cache under other settings: for the formula of the plan."""
    settings = {
        "eager": EAGER,
        "tokens-2048": (*EAGER, "--max-num-batched-tokens=2048"),
        "seqs-64": (*EAGER, "--max-num-seqs=64"),
        "tokens-16384": (*EAGER, "--max-num-batched-tokens=16384"),
    }
    with extra_engines(
        lane, *(Extra(name=name, arguments=words, replaced=SMALL_KV) for name, words in settings.items())
    ) as extras:
        states = extras.await_all(START_SECONDS)
        uuid = used_uuids(lane)[0] if lane.on_gpu else ""
        found = {
            name: {
                "state": states[name],
                "arguments": settings[name],
                "engine_mib": container_mib(lane, container).get(uuid),
                "kv_mib": 1024,
                "log": memory.log_facts(extras.log(name)),
            }
            for name, container in extras.ids().items()
        }
    return {"ok": all(state == "ready" for state in states.values()), "points": found}


def fp8(folder: str) -> Any:
    """A project of its own beside this one, with an fp8 checkpoint: a hit, or a refusal with its reason."""

    def run(lane: Lane) -> Facts:
        beside = replace(
            lane,
            project=f"{lane.project}-{folder}",
            port=lane.port + FP8_PORTS[folder],
            model=str(lane.models / folder),
            override=lane.override.with_name(f"override-{lane.project}-{folder}.yaml"),
            settings=(*lane.settings, "engine.arguments.enforce-eager=true"),
        )
        from gpu.session import make_override, remove_networks

        make_override(beside)
        code, told, seconds = warm(
            beside, "up", "--json", *up_arguments(beside), log=folder, seconds=UP_SECONDS / 2
        )
        facts, log = _read(told), engine_log(beside)
        seen = snapshot(beside) if code == 0 else {}
        again: Facts = {}
        if code == 0:
            exit_code, told, _ = warm(beside, "restart", "--json", log=folder, seconds=START_SECONDS)
            again = {
                "exit": exit_code,
                **{k: _read(told).get(k) for k in ("outcome", "same_answer", "seconds")},
            }
        evidence = beside.docker_project.engine_evidence()
        status = beside.docker_project.supervisor_status() or {}
        (lane.folder / f"{folder}-vllm.log").write_text("\n".join(log) + "\n", encoding="utf-8")
        warm(beside, "down", "--all", "--volumes", log=folder, seconds=120)
        remove_networks(beside)
        return {
            "ok": code == 0 and facts.get("outcome") == "hit" and bool(again.get("same_answer")),
            "exit": code,
            "took": round(seconds, 1),
            "outcome": evidence.outcome,
            "reason": evidence.reason,
            "sentence": evidence.sentence,
            "tensors": evidence.tensors,
            "bytes_held": status.get("bytes_held"),
            "weight_cache_says": status.get("reason") or status.get("last_error"),
            "restart": again,
            "log": memory.log_facts(log),
            "seen": seen,
            "said": (lane.folder / f"{folder}.log").read_text(encoding="utf-8")[-1500:] if code else "",
        }

    return run


def side_by_side(lane: Lane) -> Facts:
    """The stacks of two lanes on this host: no container, volume, port or GPU in common but the hub."""
    names = (lane.project, "g-small" if lane.project == "g-eight" else "g-eight")
    stacks = {name: _belongings(Project(name=name)) for name in names}
    stacks = {name: one for name, one in stacks.items() if one["containers"]}
    shared: dict[str, list[str]] = {}
    for name, one in stacks.items():
        for kind, values in one.items():
            for value in values:
                shared.setdefault(f"{kind}: {value}", []).append(name)
    common = {what: owners for what, owners in shared.items() if len(owners) > 1}
    return {
        "ok": len(stacks) > 1 and all(what == "volumes: warmstack-hub" for what in common),
        "stacks": stacks,
        "in_common": common,
    }


def _belongings(project: Project) -> dict[str, list[str]]:
    found = project.inspected()
    volumes = {m.get("Name") for c in found for m in c["Mounts"] if m["Type"] == "volume"}
    settings = read_remembered(project.folder)
    return {
        "containers": sorted(c["Name"] for c in found if c["State"]["Running"]),
        "volumes": sorted(name for name in volumes if name),
        "ports": [settings.gateway_url] if settings else [],
        "networks": sorted({c["HostConfig"]["NetworkMode"] for c in found}),
        "nodes": sorted(
            {
                device["PathOnHost"]
                for c in found
                for device in c["HostConfig"].get("Devices") or ()
                if device["PathOnHost"].removeprefix("/dev/nvidia").isdigit()
            }
        ),
    }


def both_on_one(lane: Lane) -> Facts:
    """A third project pointed at GPUs that others hold, too large beside them: refused before it starts."""
    third = replace(lane, project=f"{lane.project}-mistake", port=lane.port + 30)
    from gpu.session import make_override

    third = replace(third, override=lane.override.with_name(f"override-{third.project}.yaml"))
    make_override(third)
    large = "130" if lane.on_gpu else "0.25"
    code, _, seconds = warm(
        third,
        "up",
        *up_arguments(third),
        "--set",
        f"engine.kv_cache.gib={large}",
        *(("--set", "gpu.memory_gib=140") if lane.on_gpu else ()),
        log="both-on-one",
        seconds=90,
    )
    said = (third.folder / "both-on-one.log").read_text(encoding="utf-8")
    lines = [line for line in said.splitlines() if line.startswith(("error:", "hint:"))]
    left = [c.service for c in third.docker_project.containers()]
    if left:
        warm(third, "down", "--all", "--volumes", log="both-on-one", seconds=90)
    return {
        "ok": code in (1, 2) and bool(lines) and not left if lane.on_gpu else True,
        "exit": code,
        "said": lines,
        "containers_left": left,
        "took": round(seconds, 1),
    }


def swapped(lane: Lane) -> Facts:
    """An engine that sees the GPUs in the other order than the weight cache: refused."""
    if len(lane.gpus) < 2:
        return {"ok": True, "skipped": "one GPU"}
    uuids = used_uuids(lane)
    orders = {"same": ",".join(uuids), "swapped": ",".join(reversed(uuids))}
    extras = [
        Extra(
            name=name,
            arguments=EAGER,
            replaced=SMALL_KV,
            environment={"CUDA_VISIBLE_DEVICES": order, "WARMSTACK_MAX_RESTARTS": "1"},
        )
        for name, order in orders.items()
    ]
    with extra_engines(lane, *extras) as running:
        states = running.await_all(START_SECONDS)
        seen = {name: running.evidence(name) for name in orders}
        said = {
            name: [m[0] for line in running.log(name) if (m := _MISMATCH.search(line))] for name in orders
        }
    ok = seen["same"].outcome == "hit" and (seen["swapped"].outcome, seen["swapped"].after_miss) == (
        "miss",
        "refused",
    )
    return {
        "ok": ok,
        "orders": orders,
        "states": states,
        "outcomes": {
            name: {"outcome": one.outcome, "reason": one.reason, "sentence": one.sentence}
            for name, one in seen.items()
        },
        "vllm_says": {name: lines[:2] for name, lines in said.items()},
    }


def pid_numbers(lane: Lane) -> Facts:
    """The numbers of the engine's processes beside those of the weight cache's ranks."""
    ranks = (lane.docker_project.supervisor_status() or {}).get("rank_pids", [])
    numbers = sorted(_numbers(engine_log(lane)))
    return {"ok": bool(numbers) and not set(numbers) & set(ranks), "exporters": ranks, "engine": numbers}


def _numbers(log: list[str]) -> set[int]:
    """Process ids that vLLM writes before its lines."""
    return {int(found[1]) for line in log for found in _PROCESS.finditer(line)}


def _engine_environment(lane: Lane) -> dict[str, str]:
    config = lane.docker_project.compose.config()
    return dict(config["services"]["vllm"].get("environment") or {})


def _environment() -> dict[str, str]:
    return dict(os.environ)
