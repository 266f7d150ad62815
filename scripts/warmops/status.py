"""`status`: what runs, what is held, how the engine last started, and what to do when something is not right.

In: a running project. Out: a table or JSON. Exit 1 when the stack does not serve.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from warmops.answers import is_ready
from warmops.changes import ENGINE, ENGINES, SURGE, WEIGHT_CACHE, Container
from warmops.docker import Docker
from warmops.evidence import Mark, StartEvidence, classify_start, last_crash
from warmops.project import Project, Remembered
from warmops.project_lock import at_work
from warmops.roll_record import read_record
from warmops.route import GATEWAY, Route, show_route
from warmops.target import add_target, find_target
from warmops.units import mebibytes
from warmops.waiting import describe_cache, describe_engine


@dataclass(frozen=True, kw_only=True)
class Advice:
    """Something that is not right, and the command that mends it."""

    problem: str
    command: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)


def run(arguments: argparse.Namespace) -> int:
    project, settings = find_target(arguments)
    facts = gather(project, settings)
    if arguments.json:
        print(json.dumps(facts, indent=2, ensure_ascii=False))
    else:
        show(facts)
    return 0 if facts["serving"] else 1


def gather(project: Project, settings: Remembered) -> dict[str, Any]:
    """Everything that `status` tells, as data."""
    containers = project.containers()
    there = {container.service: container for container in containers}
    supervisor = project.supervisor_status()
    route = show_route(project, there.get(GATEWAY))
    starts = {name: start_facts(project, there.get(name), settings) for name in ENGINES}
    evidence = starts[ENGINE].evidence
    serving = is_ready(settings.gateway_url)
    host = project.host_cache
    unit = host.unit if host is not None else None
    lost = services_without_gpu(project.docker, containers) if settings.platform == "cuda" else ()
    busy = at_work(project)
    record = read_record(project.folder)
    advice = [
        *advise(
            containers, supervisor, evidence, serving=serving, project=project.name, unit=unit, lost=lost
        ),
        *advise_second(
            there.get(SURGE),
            starts[SURGE].evidence,
            standby=settings.standby,
            at_work=busy,
            step=record.step if record is not None else None,
            project=project.name,
        ),
    ]
    return {
        "project": project.name,
        "environment": settings.environment,
        "model": settings.model,
        "serving": serving,
        "gateway_url": settings.gateway_url,
        "webui_url": settings.webui_url,
        "services": [_service(c) for c in sorted(containers, key=lambda container: container.service)],
        "weight_cache": supervisor,
        "engine": _engine(starts[ENGINE]),
        "engines": {
            name: {**_engine(starts[name]), "state": there[name].state, **_routed(route, name)}
            for name in ENGINES
            if name in there
        },
        "order": None if route is None else list(route.order),
        "serving_engine": None if route is None else route.serving,
        "waiting_requests": None if route is None else route.waiting,
        "standby": settings.standby,
        "at_work": busy,
        "identity": _identity(containers, supervisor),
        "advice": [{"problem": item.problem, "command": item.command} for item in advice],
    }


@dataclass(frozen=True, kw_only=True)
class StartFacts:
    """An engine's last start, and its last crash in this container."""

    evidence: StartEvidence
    crash: Mark | None


def start_facts(project: Project, engine: Container | None, settings: Remembered) -> StartFacts:
    log = project.log(engine) if engine is not None else []
    return StartFacts(evidence=classify_start(log, ranks=settings.ranks), crash=last_crash(log))


def advise(
    containers: Sequence[Container],
    supervisor: Mapping[str, Any] | None,
    evidence: StartEvidence,
    *,
    serving: bool,
    project: str,
    unit: str | None = None,
    lost: Sequence[str] = (),
) -> tuple[Advice, ...]:
    """What is not right and the exact command for it; empty when all is well.

    `unit` is the systemd unit that is the weight cache, None where a container is. `lost` are services whose
    container may not open its GPUs any more.
    """
    there = {container.service: container for container in containers}
    bring_up = f"make up PROJECT={project}"
    found = [
        Advice(problem=f"{c.service} is {c.state} (code {c.exit_code})", command=bring_up)
        for c in containers
        if not c.running
    ]
    found += [
        Advice(problem=f"there is no {name}", command=bring_up)
        for name in (WEIGHT_CACHE, ENGINE, "gateway")
        if name not in there and not (name == WEIGHT_CACHE and unit is not None)
    ]
    found += [
        Advice(
            problem=f"{name} has lost its GPU (as a systemd reload does; make doctor names the lasting fix)",
            command=f"make down-all PROJECT={project} && {bring_up}"
            if name == WEIGHT_CACHE
            else f"make restart PROJECT={project}",
        )
        for name in lost
    ]
    found += _advise_cache(there, supervisor, project, unit)
    if evidence.mark("gave-up") is not None:
        sentence = evidence.sentence or "no reason given"
        found.append(
            Advice(problem=f"the engine gave up: {sentence}", command=f"make restart PROJECT={project}")
        )
    elif evidence.outcome == "miss":
        how = evidence.sentence or evidence.after_miss
        said = f"the engine missed the weight cache ({evidence.reason}): {how}"
        found.append(Advice(problem=said, command=f"make restart PROJECT={project}"))
    if not serving and not found:
        command = f"make status PROJECT={project}"
        found.append(Advice(problem=f"not serving yet: {describe_engine(evidence)}", command=command))
    return tuple(found)


def advise_second(
    surge: Container | None,
    evidence: StartEvidence,
    *,
    standby: bool,
    at_work: str | None,
    step: str | None,
    project: str,
) -> list[Advice]:
    """What is not right with a second engine, or with a roll: `step` is where one stands that did not end."""
    if at_work is not None:
        return []
    if step is not None:
        problem = f"a roll did not end: it stands at `{step}`"
        return [Advice(problem=problem, command=f"make roll PROJECT={project}")]
    bring_up = f"make up PROJECT={project}"
    if surge is not None and not standby:
        return [Advice(problem=f"{SURGE} is left over from a roll", command=bring_up)]
    if surge is None and standby:
        return [Advice(problem=f"there is no {SURGE} to stand by", command=bring_up)]
    if surge is not None and evidence.outcome == "miss":
        said = (
            f"{SURGE} missed the weight cache ({evidence.reason}): {evidence.sentence or evidence.after_miss}"
        )
        return [Advice(problem=said, command=f"docker restart {surge.id[:12]}")]
    return []


def _advise_cache(
    there: Mapping[str, Container], supervisor: Mapping[str, Any] | None, project: str, unit: str | None
) -> list[Advice]:
    cache, engine = there.get(WEIGHT_CACHE), there.get(ENGINE)
    found = []
    if unit is not None and supervisor is None:
        problem = "the weight cache, a process of this host, does not answer"
        found.append(Advice(problem=problem, command=f"sudo systemctl start {unit}"))
    elif cache is not None and cache.running and supervisor is None:
        command = f"make logs SERVICE={WEIGHT_CACHE} PROJECT={project}"
        found.append(Advice(problem="the weight cache's supervisor does not answer", command=command))
    state = str((supervisor or {}).get("state", ""))
    reason = (supervisor or {}).get("reason") or (supervisor or {}).get("last_error") or "no reason given"
    if state == "failed":
        command = f"make down-all PROJECT={project} && make up PROJECT={project}"
        if unit is not None:
            command = f"sudo systemctl restart {unit}"
        found.append(Advice(problem=f"the weight cache gave up: {reason}", command=command))
    elif state == "waiting":
        found.append(
            Advice(problem=f"the weight cache waits: {reason}", command=f"make restart PROJECT={project}")
        )
    elif (supervisor or {}).get("degraded"):
        problem = (
            "no weights are held; the engine serves on with what it mapped, and they are being loaded again"
        )
        found.append(Advice(problem=problem, command=f"make status PROJECT={project}"))
    stale = (
        cache is not None
        and engine is not None
        and engine.joined_ipc is not None
        and (engine.joined_ipc != cache.id or (engine.running and cache.started_at > engine.started_at))
    )
    if stale:
        problem = (
            "the engine is in the IPC namespace of an earlier weight cache; docker restart mends nothing"
        )
        found.append(Advice(problem=problem, command=f"make up PROJECT={project}"))
    return found


def services_without_gpu(docker: Docker, containers: Sequence[Container]) -> tuple[str, ...]:
    """Services whose container has NVIDIA's device files and may not open them.

    The device rules of its cgroup are gone then: what runs goes on, what starts fails with `Failed to
    initialize NVML: Unknown Error`.
    """
    script = 'for file in /dev/nvidiactl /dev/nvidia[0-9]*; do [ ! -e "$file" ] || : <"$file"; done'
    return tuple(
        container.service
        for container in containers
        if container.running
        and "Operation not permitted" in docker.execute(container.id, "sh", "-c", script, check=False).stderr
    )


def _engine(start: StartFacts) -> dict[str, Any]:
    evidence, crash = start.evidence, start.crash
    return {
        "doing": describe_engine(evidence),
        "outcome": evidence.outcome,
        "reason": evidence.reason,
        "tensors": evidence.tensors,
        "mapped_bytes": evidence.mapped_bytes,
        "attempt": evidence.attempt,
        "sentence": evidence.sentence,
        "last_crash": None if crash is None else {"t": crash.t, **crash.fields},
    }


def _routed(route: Route | None, name: str) -> dict[str, Any]:
    """An engine as the gateway sees it; nulls while the gateway does not tell."""
    if route is None:
        return {"ready": None, "in_flight": None}
    found = route.engine(name)
    return {"ready": found.ready, "in_flight": found.in_flight}


def _identity(containers: Sequence[Container], supervisor: Mapping[str, Any] | None) -> dict[str, Any]:
    engine = next((c.identity for c in containers if c.service == ENGINE), None)
    held = (supervisor or {}).get("identity")
    return {"engine": engine, "weight_cache": held, "equal": engine is not None and engine == held}


def _service(container: Container) -> dict[str, Any]:
    return {
        "service": container.service,
        "container": container.id[:12],
        "state": container.state,
        "health": container.health,
        "exit_code": container.exit_code,
        "restarts": container.restarts,
    }


def show(facts: Mapping[str, Any]) -> None:
    """The facts for a person."""
    console = Console()
    table = Table(title=f"{facts['project']} ({facts['environment']}): {facts['model']}")
    for name in ("service", "container", "state", "health"):
        table.add_column(name)
    for row in facts["services"]:
        table.add_row(row["service"], row["container"], row["state"], row["health"] or "-")
    console.print(table)
    lines = [
        _weights_line(facts),
        *(_engine_line(name, facts) for name in facts["engines"]),
        *([] if ENGINE in facts["engines"] else ["engine    not there"]),
        _identity_line(facts["identity"]),
        f"API       {facts['gateway_url']}/v1",
        f"chat      {facts['webui_url'] or 'off'}",
        f"serving   {'yes' if facts['serving'] else 'NO'}",
    ]
    for name, engine in facts["engines"].items():
        if engine["last_crash"] is not None:
            why = engine["last_crash"].get("sentence") or engine["last_crash"].get("error")
            lines.append(f"crashed   {name}: {why}")
    if facts["at_work"] is not None:
        lines.append(f"at work   {facts['at_work']}")
    for item in facts["advice"]:
        lines += [f"problem   {item['problem']}", f"  do      {item['command']}"]
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _weights_line(facts: Mapping[str, Any]) -> str:
    held = facts["weight_cache"]
    if held is None:
        running = any(row["service"] == WEIGHT_CACHE for row in facts["services"])
        return f"weights   {'does not answer' if running else 'not held: there is no weight cache'}"
    size = mebibytes(int(held.get("bytes_held") or 0))
    return f"weights   {describe_cache(held)}, {size}, {held.get('restarts', 0)} restarts"


def _identity_line(identity: Mapping[str, Any]) -> str:
    engine, held = identity["engine"], identity["weight_cache"]
    if engine is None or held is None:
        return f"identity  {str(engine or held or 'none')[:16]}"
    if identity["equal"]:
        return f"identity  equal: {held[:16]}"
    return f"identity  NOT EQUAL: the weight cache holds {held[:16]}, the engine needs {engine[:16]}"


def _engine_line(name: str, facts: Mapping[str, Any]) -> str:
    engine = facts["engines"][name]
    if engine["state"] != "running":
        return f"{'engine' if name == ENGINE else 'second':<9} {engine['state']}"
    outcome = engine["outcome"] + (f" ({engine['reason']})" if engine["reason"] else "")
    serves = " and serves" if facts["serving_engine"] == name else ""
    text = f"{engine['doing']}{serves}; last start: {outcome}, {engine['tensors'] or 0} tensors"
    running = f", {engine['in_flight']} requests running" if engine.get("in_flight") else ""
    return f"{'engine' if name == ENGINE else 'second':<9} {text}{running}"
