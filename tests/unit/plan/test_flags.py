"""Which command gets a flag, and as which words (cases 3 and 6)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.wishes import CPU, CUDA, plan_of
from warmplan.document import Json
from warmplan.flags import FLAGS, Scope, canonical, words

BOTH: dict[str, Json] = {
    "kv-cache-dtype": "fp8",
    "hf-overrides": {"rope_theta": 10000},
    "moe-backend": "triton",
    "speculative-config": {"method": "mtp", "num_speculative_tokens": 1},
    "enable-expert-parallel": True,
}
ENGINE_ONLY: dict[str, Json] = {
    "tool-call-parser": "hermes",
    "chat-template": "/opt/template.jinja",
    "enable-auto-tool-choice": True,
    "max-num-batched-tokens": 4096,
    "reasoning-parser": "qwen3",
}


def commands(arguments: dict[str, Json]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    plan = plan_of(f"{CUDA}engine: {{arguments: {json.dumps(arguments)}}}")
    return plan.engine.command, plan.weight_cache.command


@pytest.mark.parametrize("name", BOTH)
def test_flags_of_the_key_reach_both(name: str) -> None:
    engine, weight_cache = commands({name: BOTH[name]})
    (word,) = words(FLAGS[name], BOTH[name])
    assert word in engine
    assert word in weight_cache


@pytest.mark.parametrize("name", ENGINE_ONLY)
def test_flags_of_the_front_end_reach_the_engine_alone(name: str) -> None:
    engine, weight_cache = commands({name: ENGINE_ONLY[name]})
    assert any(word.startswith(f"--{name}") for word in engine)
    assert not any(word.startswith(f"--{name}") for word in weight_cache)


def test_api_key_is_a_flag_of_the_engine() -> None:
    assert FLAGS["api-key"].scope is Scope.ENGINE


def test_trust_remote_code_reaches_both() -> None:
    plan = plan_of(CUDA.replace("Org/Model", "Org/Model, trust_remote_code: true"))
    assert "--trust-remote-code" in plan.engine.command
    assert "--trust-remote-code" in plan.weight_cache.command


def test_loading_flags_reach_the_weight_cache_alone() -> None:
    plan = plan_of(CUDA + "weight_cache: {arguments: {safetensors-load-strategy: eager}}")
    assert "--safetensors-load-strategy=eager" in plan.weight_cache.command
    assert "--safetensors-load-strategy=eager" not in plan.engine.command


def test_preload_gets_no_flag_that_it_does_not_know() -> None:
    front_end = {name for name, flag in FLAGS.items() if flag.scope is Scope.ENGINE}
    plan = plan_of(f"{CUDA}engine: {{max_num_seqs: 4, arguments: {json.dumps({**BOTH, **ENGINE_ONLY})}}}")
    names = {word.removeprefix("--").split("=")[0] for word in plan.weight_cache.command}
    assert not names & front_end


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("enforce-eager", True, ("--enforce-eager",)),
        ("enable-prefix-caching", False, ("--no-enable-prefix-caching",)),
        ("disable-log-stats", True, ("--disable-log-stats",)),
        ("disable-log-stats", False, ()),
        ("seed", 0, ("--seed=0",)),
        ("chat-template", "-x y", ("--chat-template=-x y",)),
        ("cudagraph-capture-sizes", [1, 2], ("--cudagraph-capture-sizes", "1", "2")),
        ("middleware", ["a.b", "c.d"], ("--middleware=a.b", "--middleware=c.d")),
        ("compilation-config", {"a": "$x"}, ('--compilation-config={"a": "$x"}',)),
        ("compilation-config", '{"a":1}', ('--compilation-config={"a":1}',)),
        ("lora-modules", [{"name": "a", "path": "/b"}], ("--lora-modules", '{"name": "a", "path": "/b"}')),
    ],
)
def test_words(name: str, value: Json, expected: tuple[str, ...]) -> None:
    assert words(FLAGS[name], value) == expected


# Short: what breaks a word are characters and nesting, and long texts take seconds to make.
TEXTS = st.text(max_size=8)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(TEXTS, JSON_VALUES, max_size=3))
def test_json_arguments_are_one_word_that_reads_back(value: dict[str, Json]) -> None:
    for name in ("compilation-config", "hf-overrides", "speculative-config", "override-generation-config"):
        (word,) = words(FLAGS[name], value)
        assert json.loads(word.removeprefix(f"--{name}=")) == value


def test_names_in_every_spelling() -> None:
    assert {canonical(name) for name in ("hf_overrides", "hf-overrides", "--hf-overrides")} == {
        "hf-overrides"
    }


def test_table_has_no_flag_in_two_forms() -> None:
    from warmplan import flag_names

    blocks = [
        value
        for name, value in vars(flag_names).items()
        if name.startswith(("ENGINE_", "FRONTEND_", "PRELOAD_"))
    ]
    names = [name for block in blocks for name in block.split()]
    assert sorted(names) == sorted(FLAGS)


@pytest.mark.parametrize(
    ("text", "wish", "engine", "ranks"),
    [
        (CPU, {}, "fork", "on"),
        (CPU, {"parallel.tensor": "3"}, None, "off"),
        (CUDA, {}, "fork", "on"),
        (CUDA, {"parallel.tensor": "3", "gpu.count": "3"}, "fork", "on"),
        (CUDA, {"weight_cache.fork_ranks": "false"}, "fork", "off"),
    ],
)
def test_processes_are_forked_but_for_several_ranks_on_the_cpu(
    text: str, wish: dict[str, str], engine: str | None, ranks: str
) -> None:
    plan = plan_of(text, overrides=wish)
    assert dict(plan.engine.environment).get("VLLM_WORKER_MULTIPROC_METHOD") == engine
    assert dict(plan.weight_cache.environment)["WARMSTACK_FORK_RANKS"] == ranks
