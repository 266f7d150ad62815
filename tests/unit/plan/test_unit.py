"""The weight cache as a systemd unit: what it says, that systemd reads it so, and what may change it."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.wishes import CPU, CUDA, errors_of, plan_of
from warmplan import Plan, render_compose, render_plan, render_unit
from warmplan.placement import host_folder
from warmplan.unit_file import read_unit, split_words, unit_quoted

HOST = "weight_cache: {placement: host}\n"
HARD = [
    "",
    " spaces ",
    "$X ${Y} $$",
    "100% %n",
    'it\'s "quoted"',
    "back\\slash",
    "# no comment",
    ";",
    "two\nlines\tand a tab",
    "😀 ünïcode",
    '{"a b": [1, "$x"]}',
]
SYSTEMD = next(
    (path for path in ("/usr/lib/systemd/systemd", "/lib/systemd/systemd") if shutil.which(path)), None
)
NOBODY = 65534


def text_of(plan: Plan) -> str:
    text = render_unit(plan)
    assert text is not None
    return text


def words_of(plan: Plan) -> tuple[dict[str, str], list[str]]:
    """Variables and command of the unit, read back from its text."""
    found = read_unit(text_of(plan))
    pairs = (line[0].partition("=") for line in found["Environment"])
    return {name: value for name, _, value in pairs}, found["ExecStart"][0]


@pytest.mark.parametrize("value", HARD)
def test_a_value_comes_back(value: str) -> None:
    assert split_words(f"a {unit_quoted(value)} b") == ["a", value, "b"]


def test_control_characters_are_refused() -> None:
    with pytest.raises(ValueError, match="control character"):
        unit_quoted("a\x07")


def hard_plan() -> Plan:
    lines = "".join(f"    V{index}: {_yaml(value)}\n" for index, value in enumerate(HARD))
    return plan_of(CUDA + "weight_cache:\n  placement: host\n  environment:\n" + lines)


def _yaml(value: str) -> str:
    return str(yaml.safe_dump(value, default_style='"', allow_unicode=True, width=1000)).strip()


def test_hard_values_in_a_unit_come_back() -> None:
    variables, _ = words_of(hard_plan())
    assert {f"V{index}": variables[f"V{index}"] for index in range(len(HARD))} == {
        f"V{index}": value for index, value in enumerate(HARD)
    }


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that another user can read."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.own_host
def test_systemd_reads_what_was_meant(open_folder: Path) -> None:
    """systemd need not run, but its program must be there."""
    assert SYSTEMD is not None
    plan = hard_plan()
    assert plan.unit is not None
    (open_folder / plan.unit.name).write_text(text_of(plan))
    other = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    told = subprocess.run(
        [str(SYSTEMD), "--test", "--system", "--no-pager", f"--unit={plan.unit.name}"],
        env={"SYSTEMD_UNIT_PATH": f"{open_folder}:", "PATH": os.defpath, "SYSTEMD_LOG_COLOR": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
        **other,  # type: ignore[call-overload]  # systemd refuses to be tested by root
    )
    assert told.returncode == 0, told.stdout[-2000:]
    assert f"Unit {plan.unit.name}" in told.stdout
    for name, value in plan.unit.environment:
        assert f"\n\t\tEnvironment: {name}={value}\n" in told.stdout
    assert "\tCommand Line: /opt/venv/bin/python -m warmstack_supervisor --model=" in told.stdout
    assert f"{open_folder}/{plan.unit.name}:" not in told.stdout  # complaints name file and line


def test_it_is_the_supervisor_of_the_container_with_paths_of_the_host() -> None:
    inside, there = plan_of(CUDA), plan_of(CUDA + HOST)
    variables, command = words_of(there)
    assert command[:3] == [":/opt/venv/bin/python", "-m", "warmstack_supervisor"]
    folder = f"/var/lib/warmstack/{host_folder('warmstack-try')}"
    moved = {"/hub/": "/var/lib/warmstack/hub/", "/run/warmstack/": f"{folder}/", "port=8901": "port=8901"}
    expected = list(inside.weight_cache.command)
    for old, new in moved.items():
        expected = [word.replace(old, new) for word in expected]
    assert command[3:] == expected
    assert variables["WARMSTACK_IDENTITY"] == inside.identity.value == there.identity.value
    assert variables["WARMSTACK_SUPERVISOR_SOCKET"] == f"{folder}/supervisor.sock"
    assert variables["WARMSTACK_STATUS_HOST"] == "127.0.0.1"
    same = ("HF_HUB_OFFLINE", "WARMSTACK_MODEL_DIGEST", "WARMSTACK_WEIGHT_BYTES", "WARMSTACK_RANKS")
    assert [variables[name] for name in same] == [
        dict(inside.weight_cache.environment)[name] for name in same
    ]


@pytest.mark.parametrize(
    ("gpu", "devices"),
    [
        ("memory_gib: 80", "0"),
        ("memory_gib: 80, count: 2", "0,1"),
        ("memory_gib: 80, devices: [GPU-a]", "GPU-a"),
    ],
)
def test_a_process_of_the_host_sees_the_gpus_that_a_container_would_get(gpu: str, devices: str) -> None:
    variables, _ = words_of(plan_of(CUDA.replace("memory_gib: 80", gpu) + HOST))
    assert (variables["CUDA_VISIBLE_DEVICES"], variables["CUDA_DEVICE_ORDER"]) == (devices, "PCI_BUS_ID")
    assert "CUDA_VISIBLE_DEVICES" not in words_of(plan_of(CPU + HOST))[0]


def test_the_compose_file_has_no_weight_cache_and_joins_the_host() -> None:
    stack: Any = yaml.safe_load(render_compose(plan_of(CPU + HOST)))
    assert "weight-cache" not in stack["services"]
    assert {"vllm", "gateway", "open-webui"} <= stack["services"].keys()
    engine = stack["services"]["vllm"]
    assert engine["ipc"] == "host"
    assert "depends_on" not in engine
    binds = {mount["target"]: mount for mount in engine["volumes"] if mount["type"] == "bind"}
    folder = f"/var/lib/warmstack/{host_folder('warmstack-try')}"
    assert {target: mount["source"] for target, mount in binds.items()} == {
        "/hub": "/var/lib/warmstack/hub",
        "/run/warmstack": folder,
    }
    assert all(mount["read_only"] for mount in binds.values())
    assert not {"sockets", "warmstack-hub"} & stack["volumes"].keys()
    page = render_plan(plan_of(CPU + HOST))
    assert "process of the host, unit warmstack-try-weight-cache.service" in page


def test_a_container_has_no_unit() -> None:
    assert render_unit(plan_of(CPU)) is None


def test_two_projects_share_no_folder_and_a_socket_has_room() -> None:
    long = "p" * 200
    folders = {host_folder(name) for name in ("a", "b", long)}
    assert len(folders) == 3
    # vLLM 0.32 and 0.33: 32 hex digits of a hash, and `_draft` for speculative decoding.
    socket = f"/var/lib/warmstack/{host_folder(long)}/{'0' * 16}/vllm_weight_cache_{'0' * 32}_draft.sock"
    assert len(socket) <= 107


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("weight_cache: {port: 9000}", "weight_cache.port: means nothing for a container"),
        ("weight_cache: {placement: host, port: 8000}", "gateway.port: is the weight cache's (8000 and 8001"),
        (
            "weight_cache: {placement: host, port: 2999}",
            "open_webui.port: is the weight cache's (2999 and 3000",
        ),
        ("weight_cache: {placement: hots}", "must be one of container, host, not hots"),
    ],
)
def test_what_is_refused(lines: str, expected: str) -> None:
    assert expected in errors_of(CPU + lines)
