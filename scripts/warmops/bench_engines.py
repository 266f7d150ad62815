"""The engines that `bench` compares with: stock `vllm serve`, and vLLM's own weight cache without our levers.

In: the project's Compose file as Compose reads it. Out: containers under the engine's name in the network,
one of which runs at a time; or, beside the stack's own engine, in no network at all. Refuses to know: what is
made of their times.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from warmops.answers import Answer, is_ready
from warmops.bench_direct import ask_directly
from warmops.changes import ENGINE, WEIGHT_CACHE
from warmops.evidence import LogLine
from warmops.project import Project, Remembered, unix_seconds
from warmops.side_project import BENCH, SideProject
from warmops.starts import POLL_SECONDS, START_SECONDS, HeldRequest

STOCK = "vllm-stock"
PLAIN = "vllm-plain"
_WEIGHT_CACHE_FLAGS = re.compile(r"^--(load-format|model-loader-extra-config)=")
# How an engine's processes begin, and in what form compiled code is kept, is vLLM's own choice in both.
_LEVERS = (
    "VLLM_WORKER_MULTIPROC_METHOD",
    "VLLM_ENABLE_V1_MULTIPROCESSING",
    "VLLM_USE_MEGA_AOT_ARTIFACT",
    "WARMSTACK_NURSERY",
)
_KEPT = (
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
    "network_mode",
    "extra_hosts",
)


@dataclass(frozen=True, kw_only=True)
class OtherStart:
    """One start. `moments` are unix seconds as in a `Start`; `lines` is the log since then."""

    moments: Mapping[str, float]
    answer: Answer | None
    error: str | None
    lines: tuple[LogLine, ...] = field(default=())


@dataclass(frozen=True, kw_only=True)
class OtherEngines:
    """A Compose project beside the stack's own, removed when the comparison ends."""

    project: Project
    settings: Remembered
    side: SideProject
    beside: bool

    @classmethod
    def make(cls, project: Project, settings: Remembered, *, beside: bool) -> OtherEngines:
        """Create the containers, not started; what an interrupted bench left behind is removed first.

        `beside`: the stack's own engine lives meanwhile, so they get neither its name nor its requests.
        """
        cache = project.container(WEIGHT_CACHE)
        ipc = None if cache is None else f"container:{cache.id}"
        config = bench_config(project.compose.config(), project.name, ipc=ipc, beside=beside)
        side = SideProject.make(project, BENCH, config)
        return cls(project=project, settings=settings, side=side, beside=beside)

    def start(self, service: str) -> OtherStart:
        """Start it, and measure until the first token of a request that waited for it."""
        moments = {"stopped": time.time()}
        answer, error = (
            self._ask_itself(service, moments) if self.beside else self._ask_held(service, moments)
        )
        if answer is not None:
            moments["first-token"] = answer.sent_at + answer.first_token_seconds
            moments.setdefault("ready", moments["first-token"])
        inspected = self.project.docker.inspect(self.container(service)) or {}
        moments["container"] = unix_seconds(inspected["State"]["StartedAt"])
        return OtherStart(
            moments=moments,
            answer=answer,
            error=error,
            lines=tuple(self.side.log(service, since=moments["stopped"])),
        )

    def _ask_held(self, service: str, moments: dict[str, float]) -> tuple[Answer | None, str | None]:
        """No other engine lives: the gateway holds the request meanwhile."""
        request = HeldRequest(self.settings, self.project.api_key())
        request.start()
        self.side.start(service)
        while request.is_alive():
            if "ready" not in moments and is_ready(self.settings.gateway_url):
                moments["ready"] = time.time()
            request.join(POLL_SECONDS)
        return request.result(), request.error

    def _ask_itself(self, service: str, moments: dict[str, float]) -> tuple[Answer | None, str | None]:
        self.side.start(service)
        told = ask_directly(
            self.project.docker, self.container(service), self.settings.served_model, START_SECONDS
        )
        if told.ready_at is not None:
            moments["ready"] = told.ready_at
        return told.answer, told.error

    def stop(self, service: str) -> float:
        """Seconds until it is gone."""
        begun = time.monotonic()
        self.side.stop(service)
        return time.monotonic() - begun

    def container(self, service: str) -> str:
        return self.side.container(service)

    def remove(self) -> None:
        self.side.remove()


def bench_config(
    config: Mapping[str, Any], project: str, *, ipc: str | None, beside: bool = False
) -> dict[str, Any]:
    """A Compose file with both engines, made from the stack's own: same image, flags and volumes.

    `ipc`: the namespace of the weight cache's container; None: the engine's own, a weight cache of the host.
    `beside`: each in a network of its own, where nobody else is.
    """
    engine = config["services"][ENGINE]
    stock = _common(engine, beside=beside) | {
        "entrypoint": ["vllm", "serve"],
        "command": [part for part in engine["command"] if not _WEIGHT_CACHE_FLAGS.match(part)],
        "shm_size": config["services"].get(WEIGHT_CACHE, {}).get("shm_size", "1gb"),
    }
    # Our first process waits and moves process ids, which upstream leaves to whoever starts two containers.
    plain = _common(engine, beside=beside) | {"command": engine["command"], "ipc": ipc or engine["ipc"]}
    used = [mount["source"] for mount in engine.get("volumes", []) if mount["type"] == "volume"]
    made = {
        "services": {STOCK: stock, PLAIN: plain},
        "volumes": {name: {"external": True, "name": config["volumes"][name]["name"]} for name in used},
    }
    if "network_mode" not in stock:  # an override's: then nobody resolves the engine's name in a network
        made["networks"] = {"backend": {"external": True, "name": f"{project}_backend"}}
    return made


def _common(engine: Mapping[str, Any], *, beside: bool) -> dict[str, Any]:
    service = {name: engine[name] for name in _KEPT if name in engine}
    variables = {name: value for name, value in engine["environment"].items() if name not in _LEVERS}
    network: dict[str, Any] = (
        {} if "network_mode" in engine else {"networks": {"backend": {"aliases": [ENGINE]}}}
    )
    if beside:
        network = {"network_mode": "none"}
    return service | {
        **network,
        "environment": variables,
        "stop_grace_period": engine.get("stop_grace_period", "30s"),
    }
