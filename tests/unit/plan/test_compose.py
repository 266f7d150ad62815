"""The real Compose reads the file: values come back (cases 2, 3), hashes move only with the weights (5)."""

import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from support.compose import read_back, service_hash
from support.wishes import CPU, CUDA, LOCKED, PINS, plan_of
from warmplan import LockedModel, Pins, render_compose, render_unit
from warmplan.settings import KEYS, Key, Moves

HARD = [
    "$",
    "$$",
    "${X}",
    "$X and ${Y:-z} and $${Z}",
    'it\'s "quoted"',
    "key: value",
    "# no comment",
    "no",
    "012",
    "12:34",
    "😀 ünïcode",
    "",
    " spaces ",
    "two\nlines\tand a tab",
    "back\\slash",
    "{{ jinja }}",
    "%s",
    "-x",
]


def test_hard_values_come_back_unchanged(tmp_path: Path) -> None:
    values = {f"V{index}": value for index, value in enumerate(HARD)}
    wish = {
        "platform": "cpu",
        "model": {"name": "Org/Model", "served_name": 'it\'s $5: "${X}" # 😀'},
        "engine": {"environment": values, "arguments": {"chat-template": "{{ $x }}\n${Y}"}},
        "weight_cache": {"environment": values},
        "open_webui": {"environment": values},
        "labels": values,
    }
    services = read_back(tmp_path, render_compose(plan_of(json.dumps(wish))))["services"]
    for name in ("vllm", "weight-cache", "open-webui"):
        assert {key: services[name]["environment"][key] for key in values} == values
    for name in ("vllm", "gateway", "open-webui"):
        assert {key: services[name]["labels"][key] for key in values} == values
    assert "--chat-template={{ $x }}\n${Y}" in services["vllm"]["command"]
    assert '--served-model-name=it\'s $5: "${X}" # 😀' in services["vllm"]["command"]


@pytest.mark.parametrize(
    "flag", ["compilation_config", "hf_overrides", "speculative_config", "override_generation_config"]
)
def test_json_arguments_stay_one_word(flag: str, tmp_path: Path) -> None:
    value = {"a b": 'it\'s "x" $Y ${Z}', "ü": [1, None, True, {"n": 1.5}], "deep": {"e": {}}}
    wish = {"platform": "cuda", "gpu": {"memory_gib": 80}, "model": {"name": "Org/Model"}}
    wish["engine"] = {"arguments": {flag: value}}
    command = read_back(tmp_path, render_compose(plan_of(json.dumps(wish))))["services"]["vllm"]["command"]
    prefix = f"--{flag.replace('_', '-')}="
    (word,) = [word for word in command if word.startswith(prefix)]
    assert json.loads(word.removeprefix(prefix)) == value


def hash_of(text: str, overrides: Mapping[str, str], model: LockedModel, pins: Pins = PINS) -> str:
    """What moves with the weight cache: Compose's hash of its service, or the text of its unit."""
    plan = plan_of(text, overrides=overrides, model=model, pins=pins)
    return render_unit(plan) or hash_of_file(render_compose(plan))


@cache
def base_hash(text: str) -> str:
    return hash_of(text, {}, LOCKED)


@cache
def hash_of_file(text: str) -> str:
    """Asked once for each text: most cases compare with the same base."""
    with TemporaryDirectory() as folder:
        return service_hash(Path(folder), text, "weight-cache")


@dataclass(frozen=True)
class Change:
    """A change of one key: the override, the base it changes, and the model it leads to."""

    key: str
    value: str
    base: str = CUDA
    model: LockedModel = LOCKED


HOST = CUDA + "weight_cache: {placement: host}\n"
OTHER_CONTENT = replace(LOCKED, digest="ef" * 32)
CHANGES = (
    Change("platform", "cpu", CUDA.replace("80}", "80}")),
    Change("project", "another"),
    Change("labels.team", "blue"),
    Change("model.name", "Other/Model", model=replace(OTHER_CONTENT, name="Other/Model")),
    Change("model.revision", "v2", model=replace(OTHER_CONTENT, revision="v2")),
    Change("model.served_name", "short"),
    Change("model.dtype", "float16"),
    Change("model.quantization", "fp8"),
    Change("model.trust_remote_code", "true"),
    Change("model.weight_gib", "0.3"),
    Change("model.kv_bytes_per_token", "20000"),
    Change("model.temperature", "0.5"),
    Change("model.offline", "true"),
    Change("model.hub_endpoint", "https://hub.example"),
    Change("parallel.tensor", "3"),
    Change("engine.max_model_len", "1024"),
    Change("engine.max_num_seqs", "4"),
    Change("engine.kv_cache.gib", "3"),
    Change("engine.kv_cache.tokens", "16384"),
    Change("engine.kv_cache.concurrency", "4"),
    Change("engine.roll", "false"),
    Change("engine.standby", "true"),
    Change("engine.drain_seconds", "5"),
    Change("engine.on_miss", "disk"),
    Change("engine.wait_seconds", "60"),
    Change("engine.hang_seconds", "60"),
    Change("engine.nursery", "false"),
    Change("engine.max_restarts", "9"),
    Change("weight_cache.placement", "host"),
    Change("weight_cache.port", "9100", HOST),
    Change("weight_cache.max_restarts", "9"),
    Change("weight_cache.fork_ranks", "false"),
    Change("weight_cache.arguments.safetensors-load-strategy", "eager"),
    Change("weight_cache.environment.NCCL_DEBUG", "INFO"),
    Change("gateway.host", "127.0.0.2"),
    Change("gateway.port", "9000"),
    Change("gateway.hold_seconds", "5"),
    Change("gateway.api_key", "true"),
    Change("open_webui.enabled", "false"),
    Change("open_webui.host", "127.0.0.2"),
    Change("open_webui.port", "3001"),
    Change("open_webui.url", "https://chat.example"),
    Change("open_webui.admin_email", "me@example.com"),
    Change("open_webui.environment.WEBUI_NAME", "Ours"),
    Change("gpu.count", "2"),
    Change("gpu.devices", "GPU-a"),
    Change("gpu.memory_gib", "70"),
    Change("gpu.headroom_gib", "2"),
    Change("gpu.architecture", "sm90"),
)
BY_FLAG = (
    (Change("engine.arguments.kv-cache-dtype", "fp8"), True),
    (Change("engine.arguments.tool-call-parser", "hermes"), False),
    (Change("engine.environment.VLLM_USE_DEEP_GEMM", "0"), True),
    (Change("engine.environment.VLLM_LOGGING_LEVEL", "DEBUG"), False),
)


def key_of(change: Change) -> Key:
    return next(
        key for key in KEYS if change.key == key.name or (key.is_table and change.key.startswith(key.name))
    )


def moves(change: Change) -> bool:
    after = hash_of(change.base, {change.key: change.value}, change.model)
    return after != base_hash(change.base)


@pytest.fixture(scope="module")
def asked_side_by_side() -> None:
    """Compose takes a tenth of a second to hash a file: all cores ask before the first case needs it."""
    changes = (*CHANGES, *(change for change, _ in BY_FLAG))
    plans = [plan_of(c.base, overrides={c.key: c.value}, model=c.model) for c in changes]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(hash_of_file, {render_compose(plan) for plan in plans if not render_unit(plan)}))


@pytest.mark.usefixtures("asked_side_by_side")
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.key)
def test_every_key_moves_the_weights_as_the_table_says(change: Change) -> None:
    assert moves(change) is (key_of(change).moves is Moves.YES)


@pytest.mark.parametrize(
    # Another project is another stack: its unit has folders of its own.
    "change",
    [change for change in CHANGES if change.base == CUDA and change.key != "project"],
    ids=lambda change: change.key,
)
def test_every_key_moves_the_unit_of_the_host_alike(change: Change) -> None:
    if change.key == "weight_cache.placement":
        change = replace(change, value="container")
    assert moves(replace(change, base=HOST)) is (key_of(change).moves is Moves.YES)


@pytest.mark.usefixtures("asked_side_by_side")
@pytest.mark.parametrize(("change", "expected"), BY_FLAG, ids=lambda value: getattr(value, "key", str(value)))
def test_flags_and_variables_move_them_when_they_decide_weights(change: Change, expected: bool) -> None:
    assert moves(change) is expected


def test_every_key_is_classified() -> None:
    tried = {change.key for change in (*CHANGES, *(change for change, _ in BY_FLAG))}
    missing = [
        key.name
        for key in KEYS
        if not any(name == key.name or name.startswith(f"{key.name}.") for name in tried)
    ]
    # fast-start is the only mode that is accepted, so there is nothing to change it to.
    assert missing == ["mode"]


def test_another_version_of_vllm_moves_them() -> None:
    newer = replace(PINS, vllm_cuda="0.33.1")
    assert hash_of(CUDA, {}, LOCKED) != hash_of(CUDA, {}, LOCKED, newer)
    chat = replace(PINS, open_webui="0.13.0", gateway="2.12.0")
    assert hash_of(CUDA, {}, LOCKED) == hash_of(CUDA, {}, LOCKED, chat)


def test_folder_shell_and_secrets_do_not_move_them(tmp_path: Path) -> None:
    text = render_compose(plan_of(CPU + "gateway: {api_key: true}"))
    for folder, secret in (("a", "one"), ("deeper/b", "two")):
        (tmp_path / folder / "secrets").mkdir(parents=True)
        (tmp_path / folder / "secrets" / "api_key").write_text(secret)
    shell = {"MODEL": "x", "PORT": "1", "GPUS": "3", "HF_TOKEN": "hf_other", "COMPOSE_PROJECT_NAME": "other"}
    first = service_hash(tmp_path / "a", text, "weight-cache")
    second = service_hash(tmp_path / "deeper/b", text, "weight-cache", variables=shell)
    assert first == second


def test_ports_and_mounts_as_compose_sees_them(tmp_path: Path) -> None:
    stack: Any = read_back(tmp_path, render_compose(plan_of(CPU)))
    assert stack["name"] == "warmstack-try"
    published = {
        name: service["ports"][0] for name, service in stack["services"].items() if service.get("ports")
    }
    assert {name: (port["host_ip"], port["published"]) for name, port in published.items()} == {
        "gateway": ("127.0.0.1", "8000"),
        "open-webui": ("127.0.0.1", "3000"),
    }
    assert stack["services"]["weight-cache"]["shm_size"] == str(770 * 1024**2)
    assert stack["secrets"]["webui_secret_key"]["file"] == str(tmp_path / "secrets/webui_secret_key")
