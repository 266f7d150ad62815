"""What an environment may say, and what is said about a wrong one (cases 4, 9, 14)."""

import pytest

from support.wishes import CPU, CUDA, errors_of, spec_of


def test_smallest_environment() -> None:
    spec = spec_of("platform: cpu\nmodel:\n  name: Org/Model\n")
    assert spec.project == "warmstack-try"
    assert spec.model.served_name == "Org/Model"
    assert spec.engine.kv_cache_gib == 0.25
    origins = {setting.key: setting.origin for setting in spec.settings}
    assert origins["model.name"] == "environment.yaml:3"
    assert origins["gateway.port"] == "default"


def test_make_line_wins_and_says_so() -> None:
    spec = spec_of(
        CPU,
        {
            "model.name": "Other/Thing",
            "gateway.port": "8080",
            "engine.arguments.compilation_config": '{"level": 3}',
        },
    )
    assert spec.model.name == "Other/Thing"
    assert spec.model.served_name == "Other/Thing"
    assert spec.gateway.port == 8080
    assert spec.engine.arguments == (("compilation-config", {"level": 3}),)
    origins = {setting.key: (setting.value, setting.origin) for setting in spec.settings}
    assert origins["gateway.port"] == (8080, "make line")
    assert origins["engine.arguments.compilation-config"] == ({"level": 3}, "make line")


def test_another_model_leaves_out_what_the_file_says_of_its_own() -> None:
    sizes = "weight_gib: 3, kv_bytes_per_token: 9"
    text = CPU.replace("Org/Model", f"Org/Model, revision: v2, temperature: 0, {sizes}, dtype: float16")

    def facts(overrides: dict[str, str]) -> tuple[object, ...]:
        found = spec_of(text, overrides).model
        return found.revision, found.temperature, found.weight_gib, found.kv_bytes_per_token, found.dtype

    assert facts({}) == facts({"model.name": "Org/Model"}) == ("v2", 0.0, 3.0, 9, "float16")
    assert facts({"model.name": "Org/Other"}) == ("main", None, None, None, "float16")
    given = {"model.name": "Org/Other", "model.revision": "v3", "model.temperature": "1.5"}
    assert facts(given) == ("v3", 1.5, None, None, "float16")


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("hub.example", "model.hub_endpoint: must be like https://hub.example"),
        ("https://hub.example/?token=x", "model.hub_endpoint: must be like https://hub.example"),
        ("https://me:secret@hub.example", "model.hub_endpoint: must not hold a name or a password"),
    ],
)
def test_an_address_of_a_hub(address: str, words: str) -> None:
    said = errors_of(f"platform: cpu\nmodel: {{name: Org/Model, hub_endpoint: '{address}'}}\n")
    assert words in said
    assert "secret" not in said


def test_one_size_of_the_kv_cache_is_enough() -> None:
    lines = "engine:\n  kv_cache:\n    tokens: 4096\n    concurrency: 2\n    gib: 1\n"
    assert errors_of(CPU + lines) == (
        "error: try/environment.yaml:5: engine.kv_cache.tokens: contradicts engine.kv_cache.gib\n"
        "hint: give one of the two\n"
        "error: try/environment.yaml:6: engine.kv_cache.concurrency: contradicts engine.kv_cache.gib\n"
        "hint: give one of the two"
    )


def test_override_of_one_kv_size_replaces_the_other() -> None:
    spec = spec_of(CPU + "engine: {kv_cache: {gib: 2}}", {"engine.kv_cache.tokens": "4096"})
    assert (spec.engine.kv_cache_gib, spec.engine.kv_cache_tokens) == (None, 4096)


def test_two_errors_at_once_with_lines_and_hints() -> None:
    model = "platform: cpu\nmodel:\n  name: Org/Model\n  dtyp: auto\n"
    rest = "gatway:\n  port: 1\nparallel:\n  tensor: two\n"
    assert errors_of(model + rest) == (
        "error: try/environment.yaml:4: model.dtyp: is not a known key\nhint: did you mean model.dtype?\n"
        "error: try/environment.yaml:5: gatway: is not a known key\nhint: did you mean gateway?\n"
        "error: try/environment.yaml:8: parallel.tensor: must be a whole number, not two\n"
        "hint: write it in digits, without a unit"
    )


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("gateway: {port: '8000'}", 'gateway.port: must be a whole number, not the text "8000"'),
        ("gateway: {port: 70000}", "gateway.port: must be at most 65535, not 70000"),
        ("gateway: {port: [1]}", "gateway.port: must be a whole number, not a list"),
        ("gateway: {api_key: yes}", "gateway.api_key: must be true or false"),
        ("gateway: 8000", "gateway: must be a table of further keys"),
        ("gateway: {host: 0.0.0.0}", "gateway.host: would let everyone who reaches this host use the model"),
        ("gateway: {host: localhost}", "gateway.host: must be an IP address of this host, not localhost"),
        ("gateway: {port: 3000}", "gateway.port: 3000 is open_webui.port too"),
        ("open_webui: {port: 8000}", "open_webui.port: 8000 is gateway.port too"),
        ("open_webui: {host: 0.0.0.0}", "open_webui.host: needs the address that browsers will use"),
        ("open_webui: {url: chat.example}", "open_webui.url: must be like http://127.0.0.1:3000"),
        ("open_webui: {admin_email: me}", "open_webui.admin_email: must be an email address"),
        ("platform:", "platform: stands twice"),
        ("project:", "project: is empty"),
        ("mode: sleep", "mode: sleep and fast-start exclude each other"),
        ("mode: snapshot", "mode: snapshot and fast-start exclude each other"),
        ("mode: fast-strat", "snapshot, not fast-strat\nhint: did you mean fast-start?"),
        ("labels: {a b: x}", "labels.a b: is not a label's name"),
        ("labels: {warmstack.role: x}", "labels.warmstack.role: is a name that the project or Docker uses"),
        ("engine: {environment: {A-B: x}}", "engine.environment.A-B: is not a variable's name"),
        ("engine: {environment: {A: }}", 'engine.environment.A: is empty\nhint: write "" for an empty value'),
        ("engine: {environment: {WARMSTACK_MODEL: x}}", "the plan writes the WARMSTACK_ variables"),
        ("engine: {environment: {VLLM_CPU_KVCACHE_SPACE: 4}}", "VLLM_CPU_KVCACHE_SPACE contradicts"),
        (
            "weight_cache: {environment: {PYTORCH_CUDA_ALLOC_CONF: 'expandable_segments:True'}}",
            "PYTORCH_CUDA_ALLOC_CONF switches expandable_segments on",
        ),
        (
            "engine: {kv_cache: {gib: 1, tokens: 1}}",
            "engine.kv_cache.tokens: contradicts engine.kv_cache.gib",
        ),
        (
            "engine: {arguments: {enable-sleep-mode: true}}",
            "cannot be used with fast-start: sleep mode moves",
        ),
        ("engine: {standby: true, roll: false}", "engine.roll: contradicts engine.standby: true"),
        ("engine: {arguments: {enable_eplb: true}}", "engine.arguments.enable-eplb: cannot be used"),
        (
            "engine: {arguments: {api-key: secret}}",
            "engine.arguments.api-key: cannot be set here\nhint: a key on",
        ),
        ("engine: {arguments: {tool-call-parse: hermes}}", "hint: did you mean tool-call-parser?"),
        ("engine: {arguments: {no-enable-prefix-caching: true}}", "hint: write enable-prefix-caching: false"),
        ("engine: {arguments: {enforce-eager: 1}}", "engine.arguments.enforce-eager: must be true or false"),
        ("engine: {arguments: {seed: [1]}}", "engine.arguments.seed: must be a single value"),
        ("engine: {arguments: {logits-processors: [a, --x]}}", "holds --x, which vLLM would take for a flag"),
        ("engine: {arguments: {cudagraph-capture-sizes: []}}", "cudagraph-capture-sizes: must be a list"),
        ("engine: {arguments: {seed: 1, --seed: 2}}", "engine.arguments.--seed: stands twice"),
        (
            "engine: {arguments: {safetensors-load-strategy: lazy}}",
            "does nothing in an engine that maps its weights",
        ),
        ("weight_cache: {arguments: {hf-overrides: {}}}", "is not for the weight cache alone"),
        (
            "engine: {arguments: {watchdog-config: {}}}",
            "is a flag of vLLM 0.33, and the cpu platform has 0.32",
        ),
        ("gpu: {count: 1}", "gpu.count: means nothing on the cpu platform"),
    ],
)
def test_refused(lines: str, expected: str) -> None:
    assert expected in errors_of(CPU + lines)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("./model", "hint: for a folder give its absolute path"),
        ("Qwen3-8B", "hint: for instance Qwen/Qwen3-8B"),
        ("a/b/c", "must be Org/Name or an absolute path"),
        ("/data/../model", "must be a folder's absolute path without"),
    ],
)
def test_refused_model_names(name: str, expected: str) -> None:
    assert expected in errors_of(f"platform: cpu\nmodel: {{name: {name}}}")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("platform: cuda\nmodel: {name: O/M}", "gpu.memory_gib: is missing"),
        (CUDA + "parallel: {tensor: 2}\n", None),
        (
            CUDA.replace("80}", "80, count: 1}") + "parallel: {tensor: 2}",
            "1 GPUs are too few for parallel.tensor 2",
        ),
        (CUDA.replace("80}", "80, devices: [0]}"), "gpu.devices: must be UUIDs, not 0"),
        (CUDA.replace("80}", "80, devices: [GPU-a, GPU-b]}"), "names 2 GPUs where gpu.count is 1"),
    ],
)
def test_gpus(lines: str, expected: str | None) -> None:
    if expected is None:
        assert spec_of(lines).gpu.count == 2
    else:
        assert expected in errors_of(lines)


def test_wrong_override_names_the_make_line() -> None:
    assert errors_of(CPU, {"gateway.port": "x"}) == (
        "error: gateway.port (make line): must be a whole number, not x\n"
        "hint: write it in digits, without a unit"
    )
    assert "gateway.prot (make line): is not a known key" in errors_of(CPU, {"gateway.prot": "1"})
    assert "gateway.host (make line): would let everyone" in errors_of(CPU, {"gateway.host": "0.0.0.0"})


def test_missing_keys() -> None:
    assert errors_of("") == (
        "error: try/environment.yaml: platform: is missing\nhint: add `platform:`\n"
        "error: try/environment.yaml: model.name: is missing\nhint: add `name:`"
    )


def test_a_wrong_value_hides_no_other_problem() -> None:
    text = errors_of("platform: gpu\nmodel: {name: x}\nmode: sleep\ngateway: {host: 0.0.0.0}")
    assert [line.split(": ")[2] for line in text.splitlines() if line.startswith("error")] == [
        "platform",
        "mode",
        "model.name",
        "gateway.host",
    ]


def test_a_published_address_with_a_key_is_fine() -> None:
    spec = spec_of(CPU + "gateway: {host: 0.0.0.0, api_key: true}")
    assert spec.gateway.host == "0.0.0.0"


def test_local_folder() -> None:
    spec = spec_of("platform: cpu\nmodel: {name: /data/models/my-model}")
    assert spec.model.is_local
    assert spec.model.served_name == "my-model"
