"""Every check of `doctor` on a host that passes and on one that does not; what `up` would refuse."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from warmops.doctor import essential, finding_lines, refuse
from warmops.doctor_checks import CHECKS, judge_all
from warmops.doctor_facts import (
    DoctorFacts,
    EngineFacts,
    Gpu,
    GpuHost,
    GpuProcess,
    HostCacheFacts,
    HubFacts,
    MachineFacts,
    PortFacts,
    WishFacts,
)
from warmops.doctor_verdicts import Finding
from warmplan import UserError

GIB = 1024**3
ENGINE = EngineFacts(
    version="20.10.24+dfsg1",
    api="1.41",
    compose="5.6.1",
    runtimes=("nvidia", "runc"),
    cgroup_driver="systemd",
    security_options=("name=seccomp,profile=default",),
    folder="/var/lib/docker",
    clock_offset_seconds=0.01,
)
GPU = Gpu(uuid="GPU-1", name="H200", total_bytes=141 * GIB, free_bytes=140 * GIB)
SERVER = DoctorFacts(
    engine=ENGINE,
    gpu=GpuHost(driver="580.95.05", gpus=(GPU, replace(GPU, uuid="GPU-2"))),
    machine=MachineFacts(
        memory_available_bytes=100 * GIB,
        disk_free_bytes=500 * GIB,
        dev_shm_bytes=64 * GIB,
        pid_max=4194304,
        selinux=None,
    ),
    hub=HubFacts(asked="https://hub.example", token="set"),
    wish=WishFacts(
        environment="gpu",
        platform="cuda",
        model="Org/Model",
        is_local=False,
        ports=(PortFacts(variable="PORT", host="127.0.0.1", port=8000, problem=None),),
        gpu_count=1,
        cuda="13.0",
        memory_bytes=80 * GIB,
        shm_bytes=2 * GIB,
        weight_bytes=16 * GIB,
        on_disk=False,
        images_are_there=True,
    ),
    compose_minimum=(2, 30, 0),
)
WISH = SERVER.wish or WishFacts(environment="", platform="", model="", is_local=False)
LAPTOP = replace(
    SERVER,
    engine=replace(ENGINE, runtimes=("runc",), cgroup_driver="cgroupfs"),
    gpu=GpuHost(),
    wish=replace(WISH, platform="cpu", environment="cpu", gpu_count=0, cuda=None, memory_bytes=4 * GIB),
)


def engine(facts: DoctorFacts = SERVER, **changes: Any) -> DoctorFacts:
    return replace(facts, engine=replace(facts.engine, **changes))


def wish(facts: DoctorFacts = SERVER, **changes: Any) -> DoctorFacts:
    return replace(facts, wish=replace(facts.wish or WISH, **changes))


def machine(facts: DoctorFacts = SERVER, **changes: Any) -> DoctorFacts:
    return replace(facts, machine=replace(facts.machine, **changes))


def gpu(**changes: Any) -> DoctorFacts:
    return replace(SERVER, gpu=replace(SERVER.gpu, **changes))


def hub(**changes: Any) -> DoctorFacts:
    return replace(SERVER, hub=replace(SERVER.hub, **changes))


def finding(facts: DoctorFacts, name: str) -> Finding:
    return next(found for found in judge_all(facts) if found.name == name)


@pytest.mark.parametrize("facts", [SERVER, LAPTOP])
def test_a_host_on_which_nothing_is_wrong(facts: DoctorFacts) -> None:
    assert [found for found in judge_all(facts) if found.level not in ("ok", "skip")] == []
    assert essential(facts) == ()


def test_what_is_skipped_on_a_gpu_server() -> None:
    skipped = [found.name for found in judge_all(SERVER) if found.level == "skip"]
    assert skipped == ["model folder", "memory", "host unit"]


HELD = replace(
    GPU, free_bytes=10 * GIB, processes=(GpuProcess(pid=4242, name="python3", used_bytes=131 * GIB),)
)
TAKEN = PortFacts(variable="PORT", host="127.0.0.1", port=8000, problem="is in use")
DOWN = EngineFacts(problem="Cannot connect to the Docker daemon", compose="5.6.1")


NO_NVIDIA = engine(runtimes=("runc",))
BY_CDI = engine(runtimes=("runc",), cdi_devices=("nvidia.com/gpu=0",))
OTHERS = wish(gpu_count=2, gpus=("GPU-9", "GPU-1"))
UNIT = HostCacheFacts(unit="u.service", socket="/s", state="held")
NO_UNIT = replace(UNIT, state=None)
GONE = wish(is_local=True, model="/m", folder_problems=("there is no folder /m",))
LITTLE_DISK = machine(disk_free_bytes=16 * GIB)
WRONG = [
        (replace(SERVER, wish=None, wish_problem="x: y"), "environment", "fail", "x: y", "make plan"),
        (replace(SERVER, wish_problem="short", wish_hint="less"), "environment", "fail", "short", "less"),
        (replace(SERVER, engine=DOWN), "api", "fail", "Cannot connect", "systemctl start docker"),
        (engine(problem="permission denied while …"), "api", "fail", "permission denied", "usermod"),
        (engine(version="19.03.5"), "engine", "fail", "19.03.5 is older than 20.10", "upgrade"),
        (engine(compose=None), "compose", "fail", "no Compose plugin", "2.30.0 or newer"),
        (engine(compose="2.29.7"), "compose", "fail", "2.29.7 is older than 2.30.0", "upgrade"),
        (NO_NVIDIA, "gpu runtime", "fail", "no NVIDIA runtime", "nvidia-ctk runtime configure"),
        (BY_CDI, "gpu runtime", "fail", "knows GPUs by CDI, and before 29", "nvidia-ctk runtime"),
        (gpu(driver=None, gpus=()), "gpu driver", "fail", "no NVIDIA driver", "install"),
        (gpu(driver="575.57.08"), "gpu driver", "fail", "575.57.08 is too old for", "580"),
        (gpu(gpus=(HELD,)), "gpu memory", "fail", "held by 4242 python3 (134,144 MiB)", "stop what holds it"),
        (wish(gpu_count=3), "gpu memory", "fail", "2 of the 3 GPUs", "parallel.tensor"),
        (OTHERS, "gpu memory", "fail", "1 of the 2 GPUs", "gpu.devices"),
        (GONE, "model folder", "fail", "there is no folder /m", "chmod"),
        (gpu(unlinked=("/dev/nvidia0",)), "cgroups", "warn", "1 NVIDIA device files", "symlinks"),
        (LITTLE_DISK, "disk", "fail", "17,408 MiB are needed for the checkpoint", "docker"),
        (wish(LITTLE_DISK, on_disk=None), "disk", "warn", "are needed", "docker"),
        (machine(LAPTOP, memory_available_bytes=3 * GIB), "memory", "fail", "4,096 MiB are planned", "stop"),
        (machine(memory_available_bytes=GIB), "/dev/shm", "fail", "1,024 MiB are available", "smaller model"),
        (wish(ports=(TAKEN,)), "ports", "fail", "127.0.0.1:8000 is in use", "make up PORT=8001"),
        (wish(machine(dev_shm_bytes=GIB), host_cache=UNIT), "/dev/shm", "fail", "1,024 MiB", "remount"),
        (wish(host_cache=NO_UNIT), "host unit", "fail", "none answers at /s", "systemctl start u.service"),
        (machine(pid_max=4096), "pid_max", "warn", "kernel.pid_max is 4096", "sysctl"),
        (
            engine(machine(selinux="enforcing"), security_options=("name=selinux",)),
            "selinux",
            "warn",
            "must be labelled",
            "chcon",
        ),
        (hub(problem="timeout"), "hub", "warn", "does not answer (timeout)", "HF_ENDPOINT"),
        (wish(offline=True), "hub", "fail", "Org/Model is not on disk", "remove the line"),
        (hub(token="empty"), "hub token", "warn", "set and empty", "unset HF_TOKEN"),
        (engine(clock_offset_seconds=-90.0), "clock", "warn", "-90.0 s off", "timedatectl"),
]  # fmt: skip


@pytest.mark.parametrize(("facts", "name", "level", "words", "fix"), WRONG)
def test_what_is_wrong_is_said_with_its_fix(
    facts: DoctorFacts, name: str, level: str, words: str, fix: str
) -> None:
    """Cases 15, 26 and 27 among others."""
    found = finding(facts, name)
    assert found.level == level
    assert words in found.sentence
    assert found.fix is not None
    assert fix in found.fix


def test_every_check_has_a_case_above() -> None:
    assert {case[1] for case in WRONG} == {check.name for check in CHECKS}


@pytest.mark.parametrize(
    ("facts", "name", "words"),
    [
        (wish(wish(gpu_count=1), runs=True), "gpu memory", "holds its share"),
        (wish(LAPTOP, runs=True), "memory", "holds its share"),
        (wish(cuda=None), "gpu driver", "not known"),
        (machine(disk_free_bytes=None), "disk", "another host"),
        (wish(is_local=True), "hub", "local folder"),
        (hub(asked=None), "hub", "no address of a hub"),
        (replace(SERVER, engine=DOWN), "clock", "does not answer"),
        (wish(memory_bytes=None), "gpu memory", "no plan"),
        (wish(images_are_there=None), "disk", "no plan"),
    ],
)
def test_what_cannot_be_told_is_skipped(facts: DoctorFacts, name: str, words: str) -> None:
    found = finding(facts, name)
    assert found.level == "skip"
    assert words in found.sentence


@pytest.mark.parametrize(
    ("facts", "name", "words"),
    [
        (engine(BY_CDI, version="29.0.1"), "gpu runtime", "hands GPUs over by CDI"),
        (wish(is_local=True, model="/m"), "model folder", "/m can be read"),
        (wish(gpus=("GPU-2",)), "gpu memory", "are free on each GPU"),
        (wish(machine(disk_free_bytes=2 * GIB), on_disk=True), "disk", "needed for logs and volumes"),
        (wish(hub(problem="timeout"), on_disk=True), "hub", "the model is on disk"),
        (wish(host_cache=UNIT), "host unit", "u.service answers: held"),
        (wish(host_cache=UNIT), "/dev/shm", "the host's /dev/shm has 65,536 MiB in all"),
        (wish(offline=True, on_disk=True), "hub", "no hub is asked, and the model is on disk"),
        (wish(offline=True, on_disk=None), "hub", "so the model must be on disk"),
        (machine(selinux="enforcing"), "selinux", "enforcing, not used by Docker"),
        (hub(token="none"), "hub token", "not set"),
        (engine(gpu(unlinked=("/dev/nvidia0",)), cgroup_driver="cgroupfs"), "cgroups", "takes no GPU away"),
    ],
)
def test_what_looks_wrong_and_is_not(facts: DoctorFacts, name: str, words: str) -> None:
    found = finding(facts, name)
    assert found.level == "ok"
    assert words in found.sentence


@pytest.mark.parametrize(
    ("facts", "names", "code"),
    [
        (engine(runtimes=("runc",)), ["gpu runtime"], 3),
        (wish(engine(compose=None), ports=(TAKEN,)), ["compose", "ports"], 3),
        (wish(ports=(TAKEN,)), ["ports"], 1),
        (replace(SERVER, wish_problem="y"), ["environment"], 2),
        (GONE, ["model folder"], 2),
    ],
)
def test_up_refuses_with_all_that_is_essential(facts: DoctorFacts, names: list[str], code: int) -> None:
    with pytest.raises(UserError) as raised:
        refuse(essential(facts))
    assert [problem.key for problem in raised.value.problems] == names
    assert all(problem.hint for problem in raised.value.problems)
    assert raised.value.exit_code == code


def test_up_does_not_refuse_what_is_not_essential_or_left_out() -> None:
    refuse(essential(engine(clock_offset_seconds=99.0)))
    refuse(essential(engine(runtimes=("runc",)), leave_out=("gpu runtime",)))


def test_the_list_can_be_pasted() -> None:
    lines = finding_lines(judge_all(wish(ports=(TAKEN,))))
    line = "fail  ports         127.0.0.1:8000 is in use"
    assert line in lines
    assert lines[lines.index(line) + 1].endswith("make up PORT=8001")
    assert lines[-1] == "15 ok, 0 warn, 1 fail, 3 skip"
    assert not any("\x1b" in line for line in lines)
