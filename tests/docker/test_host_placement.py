"""The weight cache as a process of the host: the generated unit runs as it stands, and engines map it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.checkpoints import copy_chat_model
from support.stack import ROOT, Stack, docker
from support.unit import running_unit
from support.waiting import free_port, wait_until
from warmops.host_cache import HostCache
from warmplan.unit_file import read_unit

pytestmark = pytest.mark.own_host
SHM = Path("/dev/shm")


@dataclass(frozen=True, kw_only=True)
class Host:
    """A stack whose weight cache is on this host, and what an administrator has installed under /opt."""

    stack: Stack
    opt: Path
    port: int

    @property
    def cache(self) -> HostCache:
        return HostCache(project=self.stack.project, port=self.port)

    @property
    def unit_file(self) -> Path:
        """The unit that the last `up` needed."""
        return self.stack.state / "weight-cache.next.service"


def install(opt: Path) -> None:
    """The commands of docs/host.md for the CPU, with another folder in the place of /opt."""
    page = (ROOT / "docs/host.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"(?:^    .*-cpu\)\n)(?:^    .*\n)+", page, re.MULTILINE)
    script = block.replace(" /opt/", f" {opt}/")
    assert script.count(f" {opt}/") == 2
    subprocess.run(["sh", "-euc", script], check=True, timeout=300, stdout=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    # Below /var/tmp, since user 10001 must get through to the model, and pytest's folders are closed.
    folder = Path(tempfile.mkdtemp(prefix="wstest-host", dir="/var/tmp"))
    folder.chmod(0o755)
    stack = Stack(
        project=f"wstest-host{os.getpid()}",
        port=free_port(),
        webui_port=free_port(),
        env=str(folder / "mine"),
    )
    found = Host(stack=stack, opt=folder / "opt", port=free_port())
    try:
        copy_chat_model(folder / "model")
        found.opt.mkdir()
        install(found.opt)
        (folder / "mine").mkdir()
        (folder / "mine" / "environment.yaml").write_text(
            f"platform: cpu\nmodel: {{name: {folder}/model, dtype: bfloat16}}\n"
            "engine: {max_model_len: 2048, kv_cache: {gib: 0.125}, roll: false, max_restarts: 1}\n"
            f"weight_cache: {{placement: host, port: {found.port}}}\nopen_webui: {{enabled: false}}\n"
        )
        yield found
    finally:
        stack.warm("down", "--all", "--volumes", check=False)
        shutil.rmtree(folder)


def test_up_does_not_start_it_and_says_how(host: Host) -> None:
    done = host.stack.up(check=False)
    assert done.returncode == 1
    assert f"none answers at {host.cache.socket}" in done.stderr
    assert f"sudo install -m 644 {host.unit_file} /etc/systemd/system/{host.cache.unit}" in done.stderr
    assert f"sudo systemctl enable --now {host.cache.unit}" in done.stderr
    assert docker("ps", "-aq", "--filter", f"label=com.docker.compose.project={host.stack.project}") == ""
    assert not host.cache.folder.exists()


@pytest.fixture(scope="module")
def holding(host: Host) -> Iterator[Host]:
    """The unit runs and holds the weights."""
    host.stack.up(check=False)  # it writes the unit, and refuses
    log = host.opt.parent / "unit.log"
    before = set(SHM.iterdir())
    with running_unit(host.unit_file.read_text(), opt=host.opt, log=log) as process:
        try:
            state = wait_until(
                lambda: (host.cache.status() or {}).get("state"),
                wanted=lambda found: found in ("held", "failed"),
                seconds=300,
                what="the unit holds the weights",
            )
            assert state == "held"
            yield host
        except BaseException:
            print(log.read_text()[-4000:])
            raise
    assert process.returncode == 0
    # What was in shared memory went with the process that made it.
    assert [path for path in set(SHM.iterdir()) - before if path.name.startswith("warmstack")] == []


@pytest.fixture(scope="module")
def serving(holding: Host) -> Host:
    facts = json.loads(holding.stack.up("--json").stdout)
    assert facts["outcome"] == "hit"
    return holding


def test_the_process_is_that_of_the_unit(holding: Host) -> None:
    unit = read_unit(holding.unit_file.read_text())
    found = holding.cache.process()
    assert found.user == int(unit["User"][0][0]) == 10001
    assert (f":{found.command[0]}", *found.command[1:]) == tuple(unit["ExecStart"][0])
    expected = dict(line[0].split("=", 1) for line in unit["Environment"])
    assert {name: found.environment[name] for name in expected} == expected


def test_an_engine_maps_the_weights_and_answers(serving: Host) -> None:
    assert "Paris" in serving.stack.ask()
    engine = serving.stack.inspect("vllm")
    assert engine["HostConfig"]["IpcMode"] == "host"
    assert sorted(serving.stack.compose("ps", "--services").split()) == ["gateway", "vllm"]


def test_a_restart_is_a_hit(serving: Host) -> None:
    report = serving.stack.restart_engine()
    assert (report["outcome"], report["same_answer"], report["passed"]) == ("hit", True, True)
    assert report["tensors"] > 300


def test_a_second_up_touches_nothing(serving: Host) -> None:
    before = serving.stack.inspect("vllm")["State"]["StartedAt"]
    serving.stack.up()
    assert serving.stack.inspect("vllm")["State"]["StartedAt"] == before


def test_what_looks_sees_nothing_wrong(serving: Host) -> None:
    status = json.loads(serving.stack.warm("status", "--json").stdout)
    assert (status["advice"], status["identity"]["equal"]) == ([], True)
    assert status["weight_cache"]["state"] == "held"
    assert json.loads(serving.stack.warm("verify", "--json").stdout)["differences"] == []
    explained = serving.stack.warm("explain", "--env", serving.stack.env, "--json")
    assert json.loads(explained.stdout)["sentence"] == "would hit: every field is equal"
    findings = json.loads(serving.stack.warm("doctor", "--env", serving.stack.env, "--json").stdout)
    assert {one["name"]: one["level"] for one in findings}["host unit"] == "ok"


def test_other_weights_are_not_dropped(serving: Host) -> None:
    done = serving.stack.up("--set", "model.dtype=float16", check=False)
    assert done.returncode == 1
    assert "its restart drops what is held" in done.stderr
    assert f"sudo systemctl restart {serving.cache.unit}" in done.stderr
    assert "Paris" in serving.stack.ask()
    serving.stack.up()


def test_a_folder_retrained_in_place_is_a_refused_miss(serving: Host) -> None:
    """Case 11: never the old weights."""
    weights = serving.opt.parent / "model" / "model.safetensors"
    right = weights.read_bytes()
    weights.write_bytes(right[:-1] + bytes([right[-1] ^ 1]))
    try:
        done = serving.stack.warm("restart", "--json", check=False)
        report = json.loads(done.stdout)
        assert (done.returncode, report["outcome"], report["reason"]) == (1, "miss", "mismatch")
        assert "was changed while its weights are cached" in report["sentence"]
    finally:
        weights.write_bytes(right)
    docker("restart", serving.stack.container("vllm"))
    serving.stack.wait_ready()
    assert json.loads(serving.stack.warm("status", "--json").stdout)["engine"]["outcome"] == "hit"


def test_drills_are_refused(serving: Host) -> None:
    done = serving.stack.warm("drill", check=False)
    assert done.returncode == 2
    assert "make restart" in done.stderr


def test_down_leaves_the_weights_and_the_next_start_is_warm(serving: Host) -> None:
    done = serving.stack.warm("down", "--all")
    assert f"sudo systemctl stop {serving.cache.unit}" in done.stderr
    assert (serving.cache.status() or {})["state"] == "held"
    assert json.loads(serving.stack.up("--json").stdout)["outcome"] == "hit"
