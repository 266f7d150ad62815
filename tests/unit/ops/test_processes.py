"""Processes by id, from lines of /proc."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from warmops.hostfacts import gpu_way, parse_gpus, port_problem
from warmops.processes import Process, below_first, parse_stat, still_alive, tree_of
from warmplan import GpuFacts


def stat(pid: int, name: str, parent: int, begun: int) -> str:
    middle = " ".join(["0"] * 17)
    return f"{pid} ({name}) S {parent} {middle} {begun} 0 0"


@pytest.mark.parametrize("name", ["python", "a b", "a) S 9 (b", "(sd-pam)"])
def test_a_command_name_may_hold_anything(name: str) -> None:
    assert parse_stat(stat(412, name, 7, 99)) == Process(pid=412, parent=7, begun=99)


@pytest.mark.parametrize("line", ["", "412", "412 (python) S 1"])
def test_half_a_line_is_none(line: str) -> None:
    assert parse_stat(line) is None


def test_what_exec_started_is_not_below_the_first_process() -> None:
    tree = {1: 0, 7: 1, 8: 7, 50: 0, 51: 50}
    found = [Process(pid=pid, parent=parent, begun=pid) for pid, parent in tree.items()]
    assert [process.pid for process in below_first(found)] == [7, 8]


def test_a_tree_is_a_process_and_all_below_it() -> None:
    tree = {1: 0, 9: 1, 7: 1, 8: 7, 10: 8, 50: 0}
    found = [Process(pid=pid, parent=parent, begun=pid) for pid, parent in tree.items()]
    assert [process.pid for process in tree_of(found, 7)] == [7, 8, 10]
    assert tree_of(found, 77) == ()


def test_alive_means_same_id_and_same_beginning() -> None:
    own = parse_stat(Path(f"/proc/{os.getpid()}/stat").read_text())
    assert own is not None
    assert still_alive({own.pid: own.begun}) == (own.pid,)
    assert still_alive({own.pid: own.begun - 1}) == ()


def test_gpus_as_the_driver_lists_them() -> None:
    text = "GPU-1, 143771, 143000, 9.0\nGPU-2, 81559, 100, 8.0\n"
    assert parse_gpus(text) == (
        GpuFacts(uuid="GPU-1", total_bytes=143771 * 2**20, free_bytes=143000 * 2**20, architecture="sm90"),
        GpuFacts(uuid="GPU-2", total_bytes=81559 * 2**20, free_bytes=100 * 2**20, architecture="sm80"),
    )
    assert parse_gpus("") == ()


@pytest.mark.parametrize(
    ("version", "runtimes", "devices", "expected"),
    [
        ("20.10.24", ("nvidia", "runc"), (), "runtime"),
        ("29.0.1", ("runc",), ("nvidia.com/gpu=0",), "cdi"),
        ("28.5.2", ("runc",), ("nvidia.com/gpu=0",), None),
        ("29.0.1", ("runc",), (), None),
        ("", (), (), None),
    ],
)
def test_how_docker_hands_over_gpus(
    version: str, runtimes: tuple[str, ...], devices: tuple[str, ...], expected: str | None
) -> None:
    assert gpu_way(version=version, runtimes=runtimes, cdi_devices=devices) == expected


def test_a_port_that_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert port_problem("127.0.0.1", port) == "is in use"
    assert port_problem("127.0.0.1", port) is None
