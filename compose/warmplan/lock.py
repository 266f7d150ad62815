"""lock.yaml: what a model's name and revision meant when they were resolved.

In: the file, or a manifest as `warmstack-fetch` prints it. Out: `LockedModel`, and the file's text again. It
never resolves anything itself; an entry without a digest says so and makes a plan that cannot be brought up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from warmplan.document import Json, read_document, to_json
from warmplan.errors import Problem, UserError

HEADERS: Final = "safetensors headers"
SHAPES: Final = "the architecture's shapes, computed"
SOURCES: Final = ("hub", "package", "local", "unresolved")
_HEX64: Final = re.compile(r"[0-9a-f]{64}")
_HEX40: Final = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """What the plan needs of config.json; None where the file says nothing. Sizes are counts, not bytes."""

    architecture: str | None = None
    dtype: str | None = None
    quant_method: str | None = None
    hidden_size: int | None = None
    num_hidden_layers: int | None = None
    num_attention_heads: int | None = None
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    max_position_embeddings: int | None = None
    rope_type: str | None = None
    sliding_window: int | None = None
    kv_lora_rank: int | None = None


@dataclass(frozen=True, kw_only=True)
class LockedModel:
    """One model. `digest` (64 hex) is None when nobody resolved it; `weight_bytes` counts tensor bytes."""

    name: str
    revision: str
    source: str
    digest: str | None = None
    commit: str | None = None
    package: str | None = None
    weight_bytes: int | None = None
    weight_bytes_from: str | None = None
    facts: ModelFacts = ModelFacts()


@dataclass(frozen=True, kw_only=True)
class Lock:
    """The models of one environment."""

    models: tuple[LockedModel, ...] = ()

    def find(self, *, name: str, revision: str) -> LockedModel | None:
        """The entry for a wish, or None."""
        return next(
            (model for model in self.models if (model.name, model.revision) == (name, revision)), None
        )

    def replaced(self, model: LockedModel) -> Lock:
        """The lock with this entry in place of the one for the same name and revision."""
        others = [old for old in self.models if (old.name, old.revision) != (model.name, model.revision)]
        return Lock(models=tuple(sorted([*others, model], key=lambda entry: (entry.name, entry.revision))))


def read_lock(path: Path) -> Lock:
    """Read lock.yaml; a file that does not exist is an empty lock. Errors: `UserError` (exit code 2)."""
    if not path.is_file():
        return Lock()
    document = read_document(path)
    content = to_json(document.root)
    assert isinstance(content, dict)
    problems: list[Problem] = []
    entries = content.get("models")
    if content.get("schema") != 1 or not isinstance(entries, list):
        raise UserError(Problem(key="lock", problem="must hold `schema: 1` and `models`", file=document.file))
    models = [_entry(entry, problems, file=document.file) for entry in entries]
    if problems:
        raise UserError(problems)
    return Lock(models=tuple(models))


def model_from_manifest(manifest: Mapping[str, Json]) -> LockedModel:
    """The entry for a manifest of `warmstack-fetch`. Errors: `UserError` when a field is missing or wrong."""
    problems: list[Problem] = []
    config = manifest.get("config")
    revision = manifest.get("revision")
    entry: dict[str, Json] = {
        "name": manifest.get("model"),
        "revision": "main" if revision is None else revision,
        "weight_bytes_from": HEADERS,
        **{name: manifest.get(name) for name in ("source", "digest", "commit", "package", "weight_bytes")},
        "config": config if isinstance(config, dict) else {},
    }
    model = _entry(entry, problems, file="manifest")
    if not problems and model.digest is None:
        problems.append(Problem(key="digest", problem="is missing", file="manifest"))
    if problems:
        raise UserError(problems)
    return model


def render_lock(lock: Lock) -> str:
    """The text of lock.yaml; reading it gives the same lock."""
    lines = ["# Written by `make lock`: what names and revisions meant when they were resolved.", "schema: 1"]
    lines.append("models:" if lock.models else "models: []")
    for model in lock.models:
        lines += _entry_lines(model)
    return "\n".join(lines) + "\n"


def _entry_lines(model: LockedModel) -> list[str]:
    lines = []
    for field in fields(model):
        value = getattr(model, field.name)
        if field.name != "facts" and value is not None:
            lines.append(f"{field.name}: {json.dumps(value, ensure_ascii=False)}")
    facts = [(field.name, getattr(model.facts, field.name)) for field in fields(model.facts)]
    known = [f"  {name}: {json.dumps(value)}" for name, value in facts if value is not None]
    lines += ["config:", *known] if known else ["config: {}"]
    return [f"{'  - ' if index == 0 else '    '}{line}" for index, line in enumerate(lines)]


def _entry(entry: Json, problems: list[Problem], *, file: str) -> LockedModel:
    if not isinstance(entry, dict):
        problems.append(Problem(key="models", problem="every entry must be a table", file=file))
        entry = {}
    reader = _Fields(entry, problems, file)
    config = entry.get("config")
    return LockedModel(
        name=reader.text("name") or reader.missing("name"),
        revision=reader.text("revision") or reader.missing("revision"),
        source=reader.text("source", one_of=SOURCES) or reader.missing("source"),
        digest=reader.text("digest", pattern=_HEX64),
        commit=reader.text("commit", pattern=_HEX40),
        package=reader.text("package"),
        weight_bytes=reader.integer("weight_bytes"),
        weight_bytes_from=reader.text("weight_bytes_from", one_of=(HEADERS, SHAPES)),
        facts=_facts(_Fields(config if isinstance(config, dict) else {}, problems, file)),
    )


class _Fields:
    """Reads fields of one JSON object and collects what is wrong."""

    def __init__(self, content: Mapping[str, Json], problems: list[Problem], file: str) -> None:
        self.content = content
        self.problems = problems
        self.file = file

    def missing(self, key: str) -> str:
        if self.content.get(key) is None:
            self.problems.append(Problem(key=key, problem="is missing", file=self.file))
        return ""

    def text(
        self, key: str, *, pattern: re.Pattern[str] | None = None, one_of: tuple[str, ...] = ()
    ) -> str | None:
        value = self.content.get(key)
        if value is None:
            return None
        fits = isinstance(value, str) and (pattern is None or pattern.fullmatch(value) is not None)
        if not fits or (one_of and value not in one_of):
            self.problems.append(Problem(key=key, problem=f"cannot be {value!r}", file=self.file))
            return None
        return str(value)

    def integer(self, key: str) -> int | None:
        value = self.content.get(key)
        if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
            return value
        self.problems.append(
            Problem(key=key, problem=f"must be a whole number, not {value!r}", file=self.file)
        )
        return None


def _facts(config: _Fields) -> ModelFacts:
    """Read the fields of config.json, or of a lock entry, which has the same names where both have them."""
    content = config.content
    architectures = content.get("architectures")
    quantization = content.get("quantization_config")
    first = architectures[0] if isinstance(architectures, list) and architectures else None
    method = quantization.get("quant_method") if isinstance(quantization, dict) else None
    dtype = content.get("dtype") or content.get("torch_dtype")
    return ModelFacts(
        architecture=config.text("architecture") or (first if isinstance(first, str) else None),
        dtype=dtype if isinstance(dtype, str) else None,
        quant_method=config.text("quant_method") or (method if isinstance(method, str) else None),
        hidden_size=config.integer("hidden_size"),
        num_hidden_layers=config.integer("num_hidden_layers"),
        num_attention_heads=config.integer("num_attention_heads"),
        num_key_value_heads=config.integer("num_key_value_heads"),
        head_dim=config.integer("head_dim"),
        max_position_embeddings=config.integer("max_position_embeddings"),
        rope_type=config.text("rope_type") or _rope_type(content),
        sliding_window=_sliding_window(config),
        kv_lora_rank=config.integer("kv_lora_rank"),
    )


def _rope_type(content: Mapping[str, Json]) -> str | None:
    """How positions are stretched: transformers 5 writes `rope_parameters`, older ones `rope_scaling`."""
    for name in ("rope_parameters", "rope_scaling"):
        rope = content.get(name)
        kind = (rope.get("rope_type") or rope.get("type")) if isinstance(rope, dict) else None
        if isinstance(kind, str):
            return kind
    return None


def _sliding_window(config: _Fields) -> int | None:
    """The window in use: Qwen2 and Qwen3 may carry a size together with `use_sliding_window: false`."""
    return None if config.content.get("use_sliding_window") is False else config.integer("sliding_window")
