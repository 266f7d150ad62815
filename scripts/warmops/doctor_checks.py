"""The checks of `doctor`: each a small function from facts to one finding.

In: `DoctorFacts`. Out: `Finding`s: a level, one sentence, and the fix where there is something to mend. They
ask nothing themselves, so that each can be shown a host that passes and one that does not. A new check is a
function and a row of `CHECKS`; those of GPUs are in `doctor_gpu_checks`.
"""

from __future__ import annotations

from typing import Final

from warmops.doctor_facts import DoctorFacts, WishFacts
from warmops.doctor_gpu_checks import check_cgroups, check_driver, check_gpu_memory, check_runtime
from warmops.doctor_verdicts import NO_ENGINE, NO_PLAN, Check, Finding, Verdict, fail, ok, skip, warn
from warmops.pins import version_numbers
from warmops.preflight import BUILD_BYTES, ROOM_BYTES
from warmops.units import mebibytes

# Debian 12's Engine, on which this project's own tests run; older ones were not tried.
ENGINE_MINIMUM: Final = (20, 10)
# The kernel's own lower default. Below it process ids come round soon, and an engine must not get one of its
# weight cache's.
PID_MAX_MINIMUM: Final = 32768
CLOCK_SECONDS: Final = 2.0


def check_environment(facts: DoctorFacts) -> Verdict:
    if facts.wish is None or facts.wish_problem is not None:
        return fail(facts.wish_problem or "it could not be planned", facts.wish_hint or "make plan")
    return ok(f"{facts.wish.environment}: {facts.wish.model} on {facts.wish.platform}")


def check_api(facts: DoctorFacts) -> Verdict:
    problem = facts.engine.problem
    if problem is not None and "permission denied" in problem:
        return fail(problem, "sudo usermod -aG docker $USER, and log in again; or run this as root")
    if problem is not None:
        return fail(problem, "start it (systemctl start docker); as root, `make up` installs and starts one")
    return ok(f"the Docker engine answers, API {facts.engine.api}")


def check_engine(facts: DoctorFacts) -> Verdict:
    if facts.engine.problem is not None:
        return NO_ENGINE
    if version_numbers(facts.engine.version) < ENGINE_MINIMUM:
        return fail(f"Docker Engine {facts.engine.version} is older than 20.10", "upgrade Docker Engine")
    return ok(f"Docker Engine {facts.engine.version}")


def check_compose(facts: DoctorFacts) -> Verdict:
    minimum = ".".join(str(number) for number in facts.compose_minimum)
    if facts.engine.compose is None:
        return fail(
            "Docker has no Compose plugin", f"install Compose {minimum} or newer; as root, `make up` does"
        )
    if version_numbers(facts.engine.compose) < facts.compose_minimum:
        return fail(
            f"Compose {facts.engine.compose} is older than {minimum}", "upgrade it; as root, `make up` does"
        )
    return ok(f"Compose {facts.engine.compose}")


def check_folder(facts: DoctorFacts) -> Verdict:
    wish = facts.wish
    if wish is None or not wish.is_local:
        return skip("the model is not a local folder")
    if wish.folder_problems:
        return fail(
            "; ".join(wish.folder_problems),
            "give the folder that holds config.json and *.safetensors, and chmod -R o+rX it",
        )
    return ok(f"{wish.model} can be read by the containers")


def check_disk(facts: DoctorFacts) -> Verdict:
    wish, free = facts.wish, facts.machine.disk_free_bytes
    if free is None:
        return skip("Docker keeps its data on another host or in a folder that cannot be read")
    if wish is None or wish.images_are_there is None:
        return NO_PLAN
    needed, words = _disk_needs(wish)
    sentence = (
        f"{mebibytes(free)} are free where Docker keeps its data, {mebibytes(needed)} are needed for {words}"
    )
    if free >= needed:
        return ok(sentence)
    fix = "remove what is not needed (docker system df shows it), or move Docker's data-root"
    # Without root the volume cannot be read: the checkpoint may be there already.
    return warn(sentence, fix) if wish.on_disk is None else fail(sentence, fix)


def check_memory(facts: DoctorFacts) -> Verdict:
    wish, available = facts.wish, facts.machine.memory_available_bytes
    if wish is None or (wish.platform == "cpu" and wish.memory_bytes is None):
        return NO_PLAN
    if wish.platform != "cpu" or wish.memory_bytes is None:
        return skip(f"{mebibytes(available)} are available; the plan counts memory of GPUs")
    if wish.runs:
        return skip(f"this project runs and holds its share; {mebibytes(available)} more are available")
    sentence = f"{mebibytes(available)} are available, {mebibytes(wish.memory_bytes)} are planned"
    if available < wish.memory_bytes:
        return fail(sentence, "stop something, use a smaller model, or lower engine.kv_cache")
    return ok(sentence)


def check_shm(facts: DoctorFacts) -> Verdict:
    wish, available = facts.wish, facts.machine.memory_available_bytes
    if wish is None or wish.shm_bytes is None:
        return NO_PLAN
    if wish.runs:
        return skip("this project's weight cache runs and has what it needs")
    if wish.host_cache is not None:
        return _check_host_shm(wish.shm_bytes, facts.machine.dev_shm_bytes)
    sentence = f"the weight cache gets its own /dev/shm of {mebibytes(wish.shm_bytes)}"
    if available < wish.shm_bytes:
        return fail(
            f"{sentence}, which is memory, and {mebibytes(available)} are available",
            "stop something, or use a smaller model",
        )
    return ok(f"{sentence}; that of the host does not matter")


def _check_host_shm(needed: int, there: int) -> Verdict:
    sentence = (
        f"the host's /dev/shm has {mebibytes(there)} in all, the weight cache may fill {mebibytes(needed)}"
    )
    if there < needed:
        return fail(sentence, f"mount -o remount,size={needed} /dev/shm, or use a smaller model")
    return ok(sentence)


def check_host_cache(facts: DoctorFacts) -> Verdict:
    cache = facts.wish.host_cache if facts.wish is not None else None
    if cache is None:
        return skip("the weight cache is a container")
    if cache.state is None:
        return fail(
            f"the weight cache is a process of this host, and none answers at {cache.socket}",
            f"systemctl start {cache.unit}; docs/host.md says how it is installed, `up` with which commands",
        )
    return ok(f"{cache.unit} answers: {cache.state}")


def check_ports(facts: DoctorFacts) -> Verdict:
    if facts.wish is None:
        return NO_PLAN
    taken = [port for port in facts.wish.ports if port.problem is not None]
    if taken:
        text = "; ".join(f"{port.host}:{port.port} {port.problem}" for port in taken)
        return fail(text, "make up " + " ".join(f"{port.variable}={port.port + 1}" for port in taken))
    named = ", ".join(f"{port.host}:{port.port}" for port in facts.wish.ports)
    return ok(f"{named} can be used")


def check_pid_max(facts: DoctorFacts) -> Verdict:
    limit = facts.machine.pid_max
    if limit is None:
        return skip("the kernel does not tell kernel.pid_max")
    if limit < PID_MAX_MINIMUM:
        return warn(
            f"kernel.pid_max is {limit}: process ids come round soon, and an engine that gets one "
            "of its weight cache's cannot map",
            "sysctl -w kernel.pid_max=4194304",
        )
    return ok(f"kernel.pid_max is {limit}")


def check_selinux(facts: DoctorFacts) -> Verdict:
    state = facts.machine.selinux
    labels = any("selinux" in option for option in facts.engine.security_options)
    if state != "enforcing" or not labels:
        return ok(
            f"SELinux: {state or 'not in this kernel'}{'' if labels or not state else ', not used by Docker'}"
        )
    return warn(
        "SELinux is enforcing and Docker labels containers: secrets and a local model must be labelled too",
        "chcon -Rt container_file_t .warmstack, and the same for the folder of a local model",
    )


def check_hub(facts: DoctorFacts) -> Verdict:
    hub = facts.hub
    if facts.wish is not None and facts.wish.is_local:
        return skip("the model is a local folder")
    if facts.wish is not None and facts.wish.offline:
        return _check_offline(facts.wish)
    if hub.asked is None:
        return skip(
            "no address of a hub is set and no client is installed here; fetching asks the hub itself"
        )
    if hub.problem is None:
        return ok(f"{hub.asked} answers")
    fix = "check the network, HTTPS_PROXY, and HF_ENDPOINT or model.hub_endpoint"
    if facts.wish is not None and facts.wish.on_disk:
        return ok(f"{hub.asked} does not answer ({hub.problem}), and the model is on disk")
    return warn(
        f"{hub.asked} does not answer ({hub.problem}); a model that is not on disk cannot be fetched", fix
    )


def _check_offline(wish: WishFacts) -> Verdict:
    if wish.on_disk is False:
        return fail(
            f"model.offline is set, and {wish.model} is not on disk",
            "fetch it where a hub answers (make lock without the line), or remove the line",
        )
    there = "and the model is on disk" if wish.on_disk else "so the model must be on disk"
    return ok(f"model.offline is set: no hub is asked, {there}")


def check_token(facts: DoctorFacts) -> Verdict:
    if facts.hub.token == "empty":
        return warn("HF_TOKEN is set and empty", "unset HF_TOKEN, or give it a token")
    if facts.hub.token == "none":
        return ok("not set; gated models need one (HF_TOKEN, or a saved login)")
    return ok("set")


def check_clock(facts: DoctorFacts) -> Verdict:
    offset = facts.engine.clock_offset_seconds
    if offset is None:
        return NO_ENGINE
    if abs(offset) > CLOCK_SECONDS:
        return warn(
            f"the engine's clock is {offset:+.1f} s off this one: reports compare times of both",
            "let both follow a time server (timedatectl set-ntp true)",
        )
    return ok(f"the engine's clock is within {CLOCK_SECONDS:g} s of this one")


CHECKS: Final = (
    Check(name="environment", judge=check_environment, essential=True),
    Check(name="api", judge=check_api, essential=True),
    Check(name="engine", judge=check_engine, essential=True),
    Check(name="compose", judge=check_compose, essential=True),
    Check(name="gpu runtime", judge=check_runtime, essential=True),
    Check(name="gpu driver", judge=check_driver, essential=True),
    Check(name="gpu memory", judge=check_gpu_memory, essential=True),
    Check(name="model folder", judge=check_folder, essential=True),
    Check(name="cgroups", judge=check_cgroups),
    Check(name="disk", judge=check_disk, essential=True),
    Check(name="memory", judge=check_memory, essential=True),
    Check(name="/dev/shm", judge=check_shm, essential=True),
    Check(name="ports", judge=check_ports, essential=True),
    Check(name="host unit", judge=check_host_cache),
    Check(name="pid_max", judge=check_pid_max),
    Check(name="selinux", judge=check_selinux),
    Check(name="hub", judge=check_hub, essential=True),
    Check(name="hub token", judge=check_token),
    Check(name="clock", judge=check_clock),
)


def judge_all(facts: DoctorFacts, checks: tuple[Check, ...] = CHECKS) -> tuple[Finding, ...]:
    """Every finding, in the order of the table."""
    verdicts = [(check.name, check.judge(facts)) for check in checks]
    return tuple(Finding(name=name, level=v.level, sentence=v.sentence, fix=v.fix) for name, v in verdicts)


def _disk_needs(wish: WishFacts) -> tuple[int, str]:
    """Bytes that the next `up` writes, and for what. Images for GPUs were not measured: at least as much."""
    needs = [("logs and volumes", ROOM_BYTES)]
    if not wish.images_are_there:
        needs.insert(0, ("images", BUILD_BYTES))
    if not wish.is_local and not wish.on_disk and wish.weight_bytes is not None:
        needs.insert(0, ("the checkpoint", wish.weight_bytes))
    return sum(size for _, size in needs), ", ".join(name for name, _ in needs)
