"""Steps of any lane: up, memory, restarts and drills, one JSON object of facts each.

In: a lane. Out: facts with `ok`. A step that does not come out as expected says so in its facts and does not
stop the lane. Refuses to know: order, time limits, files (that is `session`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpu import memory
from gpu.extra import Extra, ask_project, extra_engines
from gpu.lane import (
    Lane,
    compare_with_plan,
    container_mib,
    engine_log,
    forked,
    nursery_marks,
    snapshot,
    up_arguments,
    used_uuids,
    warm,
    write_json,
)
from warmops.changes import WEIGHT_CACHE
from warmops.drill_steps import view_cache
from warmops.restart import answer_now
from warmops.starts import EngineFailed, await_held

Facts = dict[str, Any]
Step = Callable[[Lane], Facts]

UP_SECONDS = 360.0
START_SECONDS = 200.0
_DROP_CACHES = Path("/proc/sys/vm/drop_caches")


def up(lane: Lane) -> Facts:
    """The generated file with its override, from whatever there is."""
    code, told, seconds = warm(lane, "up", "--json", *up_arguments(lane), log="up", seconds=UP_SECONDS)
    facts = _read(told)
    return {
        "ok": code == 0 and facts.get("outcome") == "hit",
        "exit": code,
        "seconds": round(seconds, 1),
        "outcome": facts.get("outcome"),
        "parts": facts.get("seconds"),
        "forked": forked(nursery_marks(lane)),
        "log": memory.log_facts(engine_log(lane)),
        "hardened": _hardened(lane) if code == 0 else None,
    }


def cold_up(lane: Lane) -> Facts:
    """`up` where nothing of the project runs: its seconds are those of the whole command."""
    code, _, _ = warm(lane, "down", "--all", log="cold-up", seconds=120)
    return up(lane) if code == 0 else {"ok": False, "exit": code}


def up_with(*settings: str) -> Step:
    """The same stack with other settings of the engine."""

    def run(lane: Lane) -> Facts:
        return up(replace(lane, settings=(*lane.settings, *settings)))

    return run


def memory_now(lane: Lane) -> Facts:
    """Weight cache, engine and their sum against the plan; what keeping the weights costs."""
    seen, plan = snapshot(lane), lane.plan()
    rows = compare_with_plan(lane, seen, plan)
    cost = [
        memory.overhead(
            weight_cache_mib=seen["services"].get(WEIGHT_CACHE, {}).get(uuid, 0),
            weights_bytes=plan.budget.rank_weight_bytes or 1,
        )
        for uuid in used_uuids(lane)
    ]
    status = lane.docker_project.supervisor_status() or {}
    return {
        "ok": bool(rows) and all(row["ok"] for row in rows),
        "rows": rows,
        "overhead": cost,
        "plan": {part.key: part.bytes for part in plan.budget.parts},
        "bytes_held": status.get("bytes_held"),
        "log": memory.log_facts(engine_log(lane)),
        "seen": seen,
    }


def restart(lane: Lane) -> Facts:
    code, told, seconds = warm(lane, "restart", "--json", log="restart", seconds=START_SECONDS)
    facts = _read(told)
    return {
        "ok": code == 0,
        "exit": code,
        "took": round(seconds, 1),
        **{
            key: facts.get(key)
            for key in (
                "outcome",
                "reason",
                "seconds",
                "phases",
                "unattributed",
                "compile_cache",
                "same_answer",
                "answer_before",
                "answer",
                "tensors",
            )
        },
        "forked": forked(nursery_marks(lane)),
        "log": memory.log_facts(engine_log(lane)),
    }


def drill(name: str) -> Step:
    """One of the project's own drills; its report is kept whole."""

    def run(lane: Lane) -> Facts:
        code, told, seconds = warm(
            lane, "drill", "--drill", name, "--json", log=f"drill-{name}", seconds=START_SECONDS + 100
        )
        report = _read(told)
        write_json(lane.folder / f"drill-{name}.report.json", report)
        runs = report.get("runs") or [{}]
        return {
            "ok": code == 0,
            "exit": code,
            "took": round(seconds, 1),
            **{key: runs[0].get(key) for key in ("outcome", "reason", "seconds", "tensors")},
            "not_as_expected": [f for f in runs[0].get("findings", []) if not f["ok"]],
            "forked": forked(nursery_marks(lane)),
            "log": memory.log_facts(engine_log(lane)),
        }

    return run


def kill_weight_cache(lane: Lane) -> Facts:
    """The weight cache's container dies: the engine serves on; `up` brings both back with a hit."""
    project = lane.docker_project
    cache = lane.cache()
    if cache is None:
        return {"ok": False, "error": "no weight cache"}
    before = answer_now(project, lane.remembered())
    project.docker.run("kill", "--signal", "KILL", cache.id, quiet=True)
    serves = answer_now(project, lane.remembered())
    engine = lane.engine()
    during = container_mib(lane, engine.id) if engine is not None else {}
    status, told, _ = warm(lane, "status", "--json", log="kill-weight-cache", seconds=60)
    advice = _read(told).get("advice")
    code, told, seconds = warm(
        lane, "up", "--json", *up_arguments(lane), log="kill-weight-cache", seconds=UP_SECONDS
    )
    facts = _read(told)
    after = answer_now(project, lane.remembered()) if code == 0 else None
    return {
        "ok": code == 0 and facts.get("outcome") == "hit" and serves == before and after == before,
        "served_meanwhile": serves is not None and serves == before,
        "engine_mib_meanwhile": during,
        "status_exit": status,
        "advice": advice,
        "exit": code,
        "outcome": facts.get("outcome"),
        "changes": facts.get("changes"),
        "same_answer": after == before,
        "took": round(seconds, 1),
    }


def two_engines(lane: Lane) -> Facts:
    """A second engine beside the first, as in a roll: memory of both, both answer, the first goes."""
    first_answer = ask_project(lane)
    used_before = {gpu["uuid"]: gpu["used_mib"] for gpu in snapshot(lane)["gpus"]}
    with extra_engines(lane, Extra(name="second")) as extras:
        state = extras.await_all(START_SECONDS)["second"]
        second = extras.container("second")
        seen = snapshot(lane, {"second": second})
        rows = (
            compare_with_plan(lane, seen, lane.plan(engine__roll="true"), surge="second")
            if lane.on_gpu
            else []
        )
        answers = {"first": ask_project(lane), "second": extras.ask("second")}
        evidence = extras.evidence("second").outcome
        engine = lane.engine()
        assert engine is not None
        lane.docker_project.docker.run("stop", engine.id, quiet=True)
        alone = snapshot(lane, {"second": second})
        answers["second after the first is gone"] = extras.ask("second")
        extras.stop("second")
        empty = snapshot(lane)
        log = memory.log_facts(extras.log("second"))
    lane.docker_project.docker.run("start", engine.id, quiet=True)
    same = len(set(answers.values())) == 1 and first_answer in answers.values()
    return {
        "ok": state == "ready" and evidence == "hit" and same and all(row["ok"] for row in rows),
        "second": state,
        "outcome": evidence,
        "rows": rows,
        "same_answers": same,
        "answers": answers,
        "used_before_mib": used_before,
        "both": seen,
        "second_alone": alone,
        "no_engine": empty,
        "log": log,
    }


def from_disk(dropped: bool) -> Step:
    """Stock `vllm serve` from disk, with the same serving flags, page cache dropped or warm."""

    def run(lane: Lane) -> Facts:
        expected = ask_project(lane)
        engine = lane.engine()
        assert engine is not None
        lane.docker_project.docker.run("stop", engine.id, quiet=True)
        if dropped and lane.on_gpu:
            _DROP_CACHES.write_text("3")
        begun = time.monotonic()
        with extra_engines(lane, Extra(name="stock", maps=False, entrypoint=("vllm", "serve"))) as extras:
            state = extras.await_all(START_SECONDS)["stock"]
            seconds = time.monotonic() - begun
            answer = extras.ask("stock")
            log = memory.log_facts(extras.log("stock"))
            seen = snapshot(lane, {"stock": extras.container("stock")})
        lane.docker_project.docker.run("start", engine.id, quiet=True)
        mapped = await_engine(lane)
        return {
            "ok": state == "ready" and answer == expected and mapped["outcome"] == "hit",
            "page_cache": "dropped" if dropped else "warm",
            "ready_seconds": round(seconds, 1),
            "same_answer": answer == expected,
            "answers": [expected, answer],
            "log": log,
            "mapped_after": {**mapped, "log": memory.log_facts(engine_log(lane))},
            "seen": seen,
        }

    return run


def await_engine(lane: Lane) -> Facts:
    """Until the engine that a step before has started answers again."""
    deadline = time.monotonic() + START_SECONDS
    while lane.engine() is not None and time.monotonic() < deadline:
        if lane.docker_project.engine_evidence(ranks=lane.remembered().ranks).ready:
            answer = answer_now(lane.docker_project, lane.remembered())
            return {"ok": answer is not None, "outcome": _outcome(lane)}
        time.sleep(0.5)
    return {"ok": False, "outcome": _outcome(lane)}


def alone(lane: Lane) -> Facts:
    """The stacks of other lanes go: what follows has the host for itself."""
    others = {
        settings.parent.name
        for settings in lane.docker_project.state.glob("*/settings.json")
        if settings.parent.name != lane.project
    }
    ended = {
        name: warm(replace(lane, project=name), "down", "--all", log="alone", seconds=120) for name in others
    }
    used = {gpu.uuid: gpu.used_mib for gpu in _gpus(lane)}
    return {"ok": all(code == 0 for code, _, _ in ended.values()), "ended": sorted(ended), "used_mib": used}


def down(lane: Lane) -> Facts:
    """Everything of the project goes, and so does its memory."""
    code, _, seconds = warm(lane, "down", "--all", log="down", seconds=120)
    from gpu.session import remove_networks

    remove_networks(lane)
    left = {gpu.uuid: gpu.used_mib for gpu in _gpus(lane)}
    return {"ok": code == 0, "exit": code, "took": round(seconds, 1), "used_after_mib": left}


def kill_rank(lane: Lane) -> Facts:
    """One rank of the weight cache dies and the engine is restarted at once: no half-hit."""
    project = lane.docker_project
    view, cache = view_cache(project), lane.cache()
    if view is None or cache is None or len(view.rank_pids) < 1:
        return {"ok": False, "error": "the weight cache names no ranks"}
    before = answer_now(project, lane.remembered())
    victim = view.rank_pids[-1]
    project.docker.execute(cache.id, "sh", "-c", f"kill -9 {victim}")
    seen, serving = _watch_states(lane, 20.0), answer_now(project, lane.remembered())
    engine = lane.engine()
    assert engine is not None
    project.docker.run("restart", engine.id, quiet=True)
    try:
        await_held(project, seconds=START_SECONDS)
    except EngineFailed as failed:
        return {"ok": False, "error": str(failed), "states": seen}
    back = await_engine(lane)
    after, now = answer_now(project, lane.remembered()), view_cache(project)
    evidence = project.engine_evidence(ranks=lane.remembered().ranks)
    ranks_new = now is not None and victim not in now.rank_pids and len(now.rank_pids) == len(view.rank_pids)
    degraded = any(state["degraded"] for state in seen)
    return {
        "ok": bool(back["ok"]) and evidence.outcome == "hit" and ranks_new and degraded and after == before,
        "killed": victim,
        "degraded_seen": degraded,
        "states": seen,
        "served_meanwhile": serving == before,
        "outcome": evidence.outcome,
        "tensors": evidence.tensors,
        "rank_pids": [view.rank_pids, now.rank_pids if now is not None else None],
        "same_answer": after == before,
    }


def _watch_states(lane: Lane, seconds: float) -> list[Facts]:
    """Each new state of the supervisor, until one says degraded or the time is over."""
    seen: list[Facts] = []
    begun = time.monotonic()
    while time.monotonic() - begun < seconds and not any(state["degraded"] for state in seen):
        status = lane.docker_project.supervisor_status() or {}
        state = {key: status.get(key) for key in ("state", "degraded", "reason", "rank_pids")}
        if not seen or {k: v for k, v in seen[-1].items() if k != "after"} != state:
            seen.append({**state, "after": round(time.monotonic() - begun, 1)})
        time.sleep(0.2)
    return seen


def _gpus(lane: Lane) -> tuple[Any, ...]:
    from gpu.gpus import read_gpus

    return read_gpus() if lane.on_gpu else ()


def _outcome(lane: Lane) -> str:
    return lane.docker_project.engine_evidence(ranks=lane.remembered().ranks).outcome


def _hardened(lane: Lane) -> Facts:
    """What Docker says of the two containers: user, capabilities, privileges, root, namespaces."""
    found = {}
    for container in lane.docker_project.inspected():
        host, config = container["HostConfig"], container["Config"]
        found[config["Labels"]["com.docker.compose.service"]] = {
            "user": config["User"],
            "cap_drop": host["CapDrop"],
            "security_opt": host["SecurityOpt"],
            "read_only": host["ReadonlyRootfs"],
            "privileged": host["Privileged"],
            "pid_mode": host["PidMode"],
            "ipc_mode": host["IpcMode"].split(":")[0],
            "tmpfs": host["Tmpfs"],
        }
    return found


def _read(told: str) -> Facts:
    try:
        value = json.loads(told)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
