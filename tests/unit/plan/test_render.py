"""The rendered file keeps the contract of docs/architecture.md (cases 7, 8, 39)."""

from dataclasses import replace
from typing import Any

import jinja2
import pytest

from support.wishes import CPU, CUDA, LOCKED, plan_of, read_yaml
from warmplan import Plan, render, render_compose, render_plan
from warmplan.quoting import quoted

WORLD_OPEN = "gateway: {host: 0.0.0.0, port: 80, api_key: true}\n"


def content(plan: Plan) -> Any:
    return read_yaml(render_compose(plan))


@pytest.fixture(params=[CPU, CUDA], ids=["cpu", "cuda"])
def stack(request: pytest.FixtureRequest) -> Any:
    return content(plan_of(request.param))


def test_every_container_is_hardened(stack: Any) -> None:
    for service in stack["services"].values():
        assert service["user"] == "10001:10001"
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["restart"] == "unless-stopped"
        assert service["logging"] == {"driver": "json-file", "options": {"max-size": "20m", "max-file": "3"}}
        assert service["healthcheck"]["start_interval"] == "1s"
        assert any(mount.startswith("/tmp:") for mount in service["tmpfs"])


def test_kernels_can_be_loaded_from_tmp(stack: Any) -> None:
    for name in ("vllm", "weight-cache"):
        assert "/tmp:exec,mode=1777" in stack["services"][name]["tmpfs"]


def test_engine_and_weight_cache_agree(stack: Any) -> None:
    engine, holder = stack["services"]["vllm"], stack["services"]["weight-cache"]
    same = ("HF_HOME", "HF_HUB_OFFLINE", "VLLM_CACHE_ROOT", "WARMSTACK_IDENTITY", "WARMSTACK_MODEL_DIGEST")
    assert [engine["environment"][name] for name in same] == [holder["environment"][name] for name in same]
    assert engine.get("deploy") == holder.get("deploy")
    assert engine["user"] == holder["user"]
    for prefix in ("--revision=", "--dtype=", "--tensor-parallel-size="):
        words = [
            next(word for word in service["command"] if word.startswith(prefix))
            for service in (engine, holder)
        ]
        assert words[0] == words[1]


def test_ipc_is_shared_and_pids_are_not(stack: Any) -> None:
    assert stack["services"]["weight-cache"]["ipc"] == "shareable"
    assert stack["services"]["vllm"]["ipc"] == "service:weight-cache"
    assert not any("pid" in service for service in stack["services"].values())


def test_only_gateway_and_chat_are_published_on_loopback(stack: Any) -> None:
    ports = {name: service["ports"] for name, service in stack["services"].items() if "ports" in service}
    assert ports == {"gateway": ["127.0.0.1:8000:8080"], "open-webui": ["127.0.0.1:3000:8080"]}
    assert stack["networks"]["backend"] == {"internal": True}
    assert stack["services"]["open-webui"]["networks"] == ["frontend"]
    gateway = stack["services"]["gateway"]
    metrics_host = gateway["environment"]["WARMSTACK_METRICS"].partition(":")[0]
    assert gateway["networks"] == {"backend": {"aliases": [metrics_host]}, "frontend": {}}


def test_sockets_live_in_a_folder_of_the_volume_named_by_the_identity(stack: Any) -> None:
    holder = stack["services"]["weight-cache"]
    identity = holder["labels"]["warmstack.identity"]
    assert f"--weight-cache-socket-dir=/run/warmstack/{identity[:16]}" in holder["command"]
    assert {"type": "volume", "source": "sockets", "target": "/run/warmstack"} in holder["volumes"]


def test_a_miss_is_an_error_unless_asked_otherwise() -> None:
    for wish, expected in (("refuse", '"fallback": false'), ("disk", '"fallback": true')):
        command = plan_of(f"{CPU}engine: {{on_miss: {wish}}}").engine.command
        assert any(expected in word for word in command)


def test_the_weight_cache_holds_no_secret_and_no_relative_path(stack: Any) -> None:
    holder = stack["services"]["weight-cache"]
    assert "secrets" not in holder
    assert all(mount["type"] == "volume" for mount in holder["volumes"])


def test_local_folder_is_bound_read_only() -> None:
    model = replace(LOCKED, name="/data/m y", source="local")
    stack = content(plan_of('platform: cpu\nmodel: {name: "/data/m y"}', model=model))
    for name in ("weight-cache", "vllm"):
        mount = stack["services"][name]["volumes"][0]
        assert mount == {
            "type": "bind",
            "source": "/data/m y",
            "target": "/model",
            "read_only": True,
            "bind": {"create_host_path": False},
        }


def test_key_closes_the_door_and_reaches_gateway_and_chat_only() -> None:
    stack = content(plan_of(CPU + WORLD_OPEN))
    assert stack["services"]["gateway"]["ports"] == ["0.0.0.0:80:8080"]
    assert stack["services"]["gateway"]["environment"]["WARMSTACK_API_KEY"] == "required"
    users = {name for name, service in stack["services"].items() if "api_key" in service.get("secrets", [])}
    assert users == {"gateway", "open-webui"}
    assert stack["secrets"]["api_key"] == {"file": "./secrets/api_key"}


def test_without_chat_nothing_of_it_is_there() -> None:
    text = render_compose(plan_of(CPU + "open_webui: {enabled: false}"))
    stack = read_yaml(text)
    assert list(stack["services"]) == ["weight-cache", "vllm", "vllm-surge", "gateway"]
    assert "open-webui" not in stack["volumes"]
    assert "secrets" not in stack


def test_compile_volume_names_image_and_architecture() -> None:
    """Case 41."""
    plan = plan_of(CUDA.replace("80}", "80, architecture: sm90}"))
    assert plan.compile_volumes[0] == "compile-0.33.0-cuda-sm90"
    stack = content(plan)
    assert any(mount["source"] == plan.compile_volumes[0] for mount in stack["services"]["vllm"]["volumes"])
    assert not any(
        mount["source"] == plan.compile_volumes[0] for mount in stack["services"]["weight-cache"]["volumes"]
    )
    assert plan_of(CPU).compile_volumes[0] == "compile-0.32.0-cpu"


def test_a_second_engine_is_the_first_one_with_a_compile_cache_of_its_own() -> None:
    rolled, standby, alone = (
        content(plan_of(CPU + f"engine: {{{wish}}}"))
        for wish in ("roll: true", "standby: true", "roll: false")
    )
    for stack, profiles in ((rolled, ["surge"]), (standby, None)):
        first, second = stack["services"]["vllm"], dict(stack["services"]["vllm-surge"])
        assert second.pop("profiles", None) == profiles
        assert [mount["source"] for mount in first["volumes"]] == [
            "warmstack-hub", "sockets", "compile-0.32.0-cpu",
        ]  # fmt: skip
        assert [mount["source"] for mount in second["volumes"]] == [
            "warmstack-hub", "sockets", "compile-0.32.0-cpu-surge",
        ]  # fmt: skip
        asked = {"WARMSTACK_STANDBY": "on"} if stack is standby else {}
        assert second["environment"] == {**first["environment"], **asked}
        same = dict.fromkeys(("volumes", "environment"))
        assert {**second, **same} == {**first, **same}
    assert "vllm-surge" not in alone["services"]
    assert "compile-0.32.0-cpu-surge" not in alone["volumes"]
    assert rolled["services"]["vllm"] == alone["services"]["vllm"] == standby["services"]["vllm"]


def test_what_stands_and_what_only_a_roll_starts() -> None:
    rolled, standby = (plan_of(CPU + f"engine: {{{wish}}}") for wish in ("roll: true", "standby: true"))
    names = ["weight-cache", "vllm", "vllm-surge", "gateway", "open-webui"]
    assert [service.name for service in rolled.services] == names
    assert [service.name for service in rolled.standing] == [name for name in names if name != "vllm-surge"]
    assert [service.name for service in standby.standing] == names


def test_nothing_that_varies_is_in_the_key_of_the_compile_cache() -> None:
    """Case 42: vLLM hashes its `VLLM_` variables."""

    def hashed(plan: Plan) -> list[dict[str, str]]:
        services = (plan.weight_cache, plan.engine)
        return [{n: v for n, v in one.environment if n.startswith("VLLM_")} for one in services]

    other = {"project": "other", "gateway.port": "9", "model.served_name": "s", "engine.max_num_seqs": "2"}
    content = replace(LOCKED, digest="ef" * 32)
    assert hashed(plan_of(CUDA)) == hashed(plan_of(CUDA, overrides=other, model=content))


def test_a_first_load_is_never_unhealthy_and_a_probe_comes_every_second_until_then(stack: Any) -> None:
    """Case 24."""
    for name in ("vllm", "weight-cache"):
        health = stack["services"][name]["healthcheck"]
        assert (health["start_period"], health["start_interval"]) == ("3600s", "1s")


def test_gpus_by_uuid_or_by_count() -> None:
    by_uuid = content(plan_of(CUDA.replace("80}", "80, devices: [GPU-a]}")))
    by_count = content(plan_of(CUDA))
    devices = [
        stack["services"]["vllm"]["deploy"]["resources"]["reservations"]["devices"][0]
        for stack in (by_uuid, by_count)
    ]
    assert devices[0] == {"driver": "nvidia", "capabilities": ["gpu"], "device_ids": ["GPU-a"]}
    assert devices[1] == {"driver": "nvidia", "capabilities": ["gpu"], "count": "1"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("OPENAI_API_BASE_URL", "http://gateway:8080/v1"),
        ("ENABLE_OLLAMA_API", "false"),
        ("OFFLINE_MODE", "true"),
        ("ENABLE_SIGNUP", "false"),
        ("ENABLE_PERSISTENT_CONFIG", "false"),
        ("DEFAULT_MODEL_METADATA", '{"capabilities": {"builtin_tools": false}}'),
        ("DEFAULT_MODELS", "Org/Model"),
        ("CORS_ALLOW_ORIGIN", "http://127.0.0.1:3000;http://localhost:3000"),
    ],
)
def test_chat_settings(name: str, expected: str) -> None:
    chat = plan_of(CPU).open_webui
    assert chat is not None
    assert dict(chat.environment)[name] == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("platform: cpu\nmodel: {name: Org/Model, temperature: 0}", '{"temperature": 0.0}'),
        (
            "platform: cpu\nmodel: {name: Org/Model, temperature: 0}\n"
            "open_webui: {environment: {DEFAULT_MODEL_PARAMS: '{}'}}",
            "{}",
        ),
        (CPU, None),
    ],
)
def test_the_temperature_of_a_chat(lines: str, expected: str | None) -> None:
    chat = plan_of(lines).open_webui
    assert chat is not None
    assert dict(chat.environment).get("DEFAULT_MODEL_PARAMS") == expected


def test_own_chat_settings_win() -> None:
    chat = plan_of(
        CPU + "open_webui: {environment: {WEBUI_NAME: Ours, ENABLE_TAGS_GENERATION: 'true'}}"
    ).open_webui
    assert chat is not None
    assert dict(chat.environment)["ENABLE_TAGS_GENERATION"] == "true"
    assert dict(chat.environment)["WEBUI_NAME"] == "Ours"


def test_cpu_runs_eager_in_one_process() -> None:
    one, two = plan_of(CPU).engine, plan_of(CPU + "parallel: {tensor: 3}").engine
    assert "--enforce-eager" in one.command
    assert dict(one.environment)["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    assert "VLLM_ENABLE_V1_MULTIPROCESSING" not in dict(two.environment)
    assert "VLLM_CPU_KVCACHE_SPACE" not in dict(one.environment)


def test_a_forgotten_filter_is_an_error(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "compose.yaml.j2").write_text("name: {{ plan.project }}\n")
    monkeypatch.setattr(render, "TEMPLATES", tmp_path)
    render._templates.cache_clear()
    try:
        with pytest.raises(TypeError, match="without the filter `quoted`"):
            render_compose(plan_of(CPU))
    finally:
        render._templates.cache_clear()


def test_a_file_that_says_something_else_is_an_error(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for template in render.TEMPLATES.iterdir():
        text = template.read_text().replace("word | quoted", "'other' | quoted")
        (tmp_path / template.name).write_text(text)
    monkeypatch.setattr(render, "TEMPLATES", tmp_path)
    render._templates.cache_clear()
    try:
        with pytest.raises(AssertionError, match=r"weight-cache\.command"):
            render_compose(plan_of(CPU))
    finally:
        render._templates.cache_clear()


def test_templates_know_no_other_filter() -> None:
    with pytest.raises(jinja2.TemplateAssertionError):
        render._templates(quoted).from_string("{{ 'x' | upper }}")


def test_plan_page_says_when_it_is_not_locked() -> None:
    assert "**Not locked.**" in render_plan(plan_of(CPU, model=None))
    assert "**Not locked.**" not in render_plan(plan_of(CPU))
    assert "NOT LOCKED" in render_compose(plan_of(CPU, model=None))
    assert "NOT LOCKED" not in render_compose(plan_of(CPU))
