"""lock.yaml and manifests."""

from dataclasses import replace
from pathlib import Path

import pytest

from support.wishes import LOCKED, SMALL
from warmplan import (
    Lock,
    UserError,
    lock_changes,
    model_from_config,
    model_from_manifest,
    read_lock,
    render_lock,
)
from warmplan.document import Json

CONFIG: dict[str, Json] = {
    "architectures": ["LlamaForCausalLM"],
    "torch_dtype": "bfloat16",
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
    "rope_theta": 100000,
}
MANIFEST: dict[str, Json] = {
    "schema": 1,
    "model": "Org/Model",
    "revision": "main",
    "commit": "cd" * 20,
    "source": "hub",
    "package": None,
    "digest": "ab" * 32,
    "path": "/hub/models/Org--Model/abababababababab",
    "weight_bytes": 269_030_016,
    "files": {},
    "config": CONFIG,
}


def test_manifest_gives_the_entry() -> None:
    assert model_from_manifest(MANIFEST) == LOCKED


def test_local_manifest_has_no_revision() -> None:
    manifest = {**MANIFEST, "model": "/data/m", "source": "local", "revision": None, "commit": None}
    assert model_from_manifest(manifest).revision == "main"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"digest": "ab"}, "digest: cannot be 'ab'"),
        ({"digest": None}, "digest: is missing"),
        ({"source": "elsewhere"}, "source: cannot be 'elsewhere'"),
        ({"weight_bytes": "1"}, "weight_bytes: must be a whole number, not '1'"),
        ({"model": None}, "name: is missing"),
        ({"files": {"a.safetensors": {"bytes": 1}}}, "files.a.safetensors: cannot be None"),
    ],
)
def test_wrong_manifest(change: dict[str, Json], expected: str) -> None:
    with pytest.raises(UserError) as raised:
        model_from_manifest({**MANIFEST, **change})
    assert expected in str(raised.value)


def test_quantisation_and_window_come_from_the_config() -> None:
    config: dict[str, Json] = {
        **CONFIG,
        "quantization_config": {"quant_method": "awq"},
        "sliding_window": 4096,
        "use_sliding_window": False,
        "rope_scaling": {"type": "yarn", "factor": 4.0},
    }
    facts = model_from_manifest({**MANIFEST, "config": config}).facts
    assert facts == replace(SMALL, quant_method="awq", rope_type="yarn")


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    other = replace(LOCKED, name='Org/Ünï "code"', source="package", package="p==1", commit=None)
    lock = Lock().replaced(LOCKED).replaced(other)
    (tmp_path / "lock.yaml").write_text(render_lock(lock), encoding="utf-8")
    assert read_lock(tmp_path / "lock.yaml") == lock
    assert lock.find(name="Org/Model", revision="main") == LOCKED
    assert lock.find(name="Org/Model", revision="v2") is None


FILES = (("config.json", "12" * 32), ("model.safetensors", "34" * 32))
IMAGES = (("vllm/vllm-openai:v0.33.0", "sha256:" + "56" * 32),)


def test_digests_of_files_and_images_read_back(tmp_path: Path) -> None:
    files: Json = {name: {"sha256": digest, "bytes": 1} for name, digest in reversed(FILES)}
    model = model_from_manifest({**MANIFEST, "files": files})
    assert model.files == FILES
    lock = Lock(models=(model,), images=IMAGES)
    (tmp_path / "lock.yaml").write_text(render_lock(lock), encoding="utf-8")
    assert read_lock(tmp_path / "lock.yaml") == lock
    assert lock.replaced(replace(model, digest="ef" * 32)).images == IMAGES


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("images: {a: 'sha256:12'}", "images.a: cannot be 'sha256:12'"),
        ("images: [a]", "images: must be a table of digests by name"),
    ],
)
def test_wrong_digests(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "lock.yaml").write_text(f"schema: 1\nmodels: []\n{text}\n")
    with pytest.raises(UserError) as raised:
        read_lock(tmp_path / "lock.yaml")
    assert expected in str(raised.value)


def test_a_file_and_an_image_that_changed_are_named() -> None:
    old = Lock(models=(replace(LOCKED, files=FILES),))
    moved = (FILES[0], ("model-1.safetensors", "78" * 32))
    new = Lock(models=(replace(LOCKED, files=moved),), images=IMAGES)
    assert [(c.name, c.field, c.old, c.new) for c in lock_changes(old, new)] == [
        ("Org/Model", "files.model-1.safetensors", None, "78" * 32),
        ("Org/Model", "files.model.safetensors", "34" * 32, None),
        ("images", IMAGES[0][0], None, IMAGES[0][1]),
    ]


def test_replacing_keeps_one_entry_per_wish() -> None:
    lock = Lock().replaced(LOCKED).replaced(replace(LOCKED, digest="ef" * 32))
    assert [model.digest for model in lock.models] == ["ef" * 32]


def test_no_file_is_an_empty_lock(tmp_path: Path) -> None:
    assert read_lock(tmp_path / "lock.yaml") == Lock()


def test_another_schema_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lock.yaml").write_text("schema: 2\nmodels: []\n")
    with pytest.raises(UserError, match="must hold `schema: 1`"):
        read_lock(tmp_path / "lock.yaml")


def test_what_changed_between_two_locks() -> None:
    other = replace(LOCKED, name="Org/Other")
    old = Lock().replaced(LOCKED).replaced(other)
    moved = replace(LOCKED, commit="ef" * 20, digest="12" * 32, facts=replace(SMALL, head_dim=64))
    found = [(c.name, c.field, c.old, c.new) for c in lock_changes(old, Lock().replaced(moved))]
    assert found == [
        ("Org/Model", "digest", LOCKED.digest, "12" * 32),
        ("Org/Model", "commit", LOCKED.commit, "ef" * 20),
        ("Org/Model", "config.head_dim", None, 64),
        ("Org/Other", "entry", LOCKED.digest, None),
    ]
    assert lock_changes(old, old) == ()


def test_a_config_alone_is_enough_to_plan() -> None:
    model = model_from_config(name="Org/Model", revision="v1", config=CONFIG)
    assert (model.source, model.digest, model.weight_bytes, model.facts) == ("unresolved", None, None, SMALL)
    with pytest.raises(UserError, match="hidden_size: must be a whole number"):
        model_from_config(name="Org/Model", revision="v1", config={**CONFIG, "hidden_size": "many"})
