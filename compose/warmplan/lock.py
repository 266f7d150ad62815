"""lock.yaml: what a model's name and revision meant when they were resolved.

In: the file, or a manifest as `warmstack-fetch` prints it. Out: `LockedModel`, and the file's text again. It
never resolves anything itself; an entry without a digest says so and makes a plan that cannot be brought up.
Digests of single files and of images are a record for reviewers: the plan rests on the model's digest alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Final

from warmplan.document import Json, read_document, to_json
from warmplan.errors import Problem, UserError
from warmplan.facts import NO_FACTS, Fields, ModelFacts, read_facts

HEADERS: Final = "safetensors headers"
SHAPES: Final = "the architecture's shapes, computed"
SOURCES: Final = ("hub", "package", "local", "unresolved")
_HEX64: Final = re.compile(r"[0-9a-f]{64}")
_IMAGE_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_HEX40: Final = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, kw_only=True)
class LockedModel:
    """One model. `digest` (64 hex) is None when nobody resolved it; `weight_bytes` counts tensor bytes.

    `files` are the files that decide the weights by name, each with the sha256 of its content.
    """

    name: str
    revision: str
    source: str
    digest: str | None = None
    commit: str | None = None
    package: str | None = None
    weight_bytes: int | None = None
    weight_bytes_from: str | None = None
    files: tuple[tuple[str, str], ...] = ()
    facts: ModelFacts = NO_FACTS


@dataclass(frozen=True, kw_only=True)
class Lock:
    """The models of one environment, and the digests that a registry gave the images it is made from."""

    models: tuple[LockedModel, ...] = ()
    images: tuple[tuple[str, str], ...] = ()

    def find(self, *, name: str, revision: str) -> LockedModel | None:
        """The entry for a wish, or None."""
        return next(
            (model for model in self.models if (model.name, model.revision) == (name, revision)), None
        )

    def others(self, *, name: str, revision: str) -> tuple[str, ...]:
        """What it holds instead, as `name (revision)`, when it has no entry for a wish."""
        if self.find(name=name, revision=revision) is not None:
            return ()
        return tuple(f"{model.name} ({model.revision})" for model in self.models)

    def replaced(self, model: LockedModel) -> Lock:
        """The lock with this entry in place of the one for the same name and revision."""
        others = [old for old in self.models if (old.name, old.revision) != (model.name, model.revision)]
        models = sorted([*others, model], key=lambda entry: (entry.name, entry.revision))
        return replace(self, models=tuple(models))


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
    images = _digests(content.get("images"), "images", _IMAGE_DIGEST, problems, file=document.file)
    if problems:
        raise UserError(problems)
    return Lock(models=tuple(models), images=images)


def model_from_manifest(manifest: Mapping[str, Json]) -> LockedModel:
    """The entry for a manifest of `warmstack-fetch`. Errors: `UserError` when a field is missing or wrong."""
    problems: list[Problem] = []
    config = manifest.get("config")
    revision = manifest.get("revision")
    files = manifest.get("files")
    entry: dict[str, Json] = {
        "name": manifest.get("model"),
        "revision": "main" if revision is None else revision,
        "weight_bytes_from": HEADERS,
        **{name: manifest.get(name) for name in ("source", "digest", "commit", "package", "weight_bytes")},
        "files": {
            name: file.get("sha256") if isinstance(file, dict) else None
            for name, file in (files.items() if isinstance(files, dict) else ())
        },
        "config": config if isinstance(config, dict) else {},
    }
    model = _entry(entry, problems, file="manifest")
    if not problems and model.digest is None:
        problems.append(Problem(key="digest", problem="is missing", file="manifest"))
    if problems:
        raise UserError(problems)
    return model


def model_from_config(
    *, name: str, revision: str, config: Mapping[str, Json], weight_bytes: int | None = None
) -> LockedModel:
    """The entry for a model of which only config.json was read: to plan for it, not to bring it up.

    `weight_bytes` is the sum of the safetensors headers or the index when that was read too. Errors:
    `UserError` (exit code 2) for values of a wrong type.
    """
    problems: list[Problem] = []
    facts = read_facts(Fields(config, problems, "config.json"))
    if problems:
        raise UserError(problems)
    return LockedModel(
        name=name,
        revision=revision,
        source="unresolved",
        weight_bytes=weight_bytes,
        weight_bytes_from=None if weight_bytes is None else HEADERS,
        facts=facts,
    )


def render_lock(lock: Lock) -> str:
    """The text of lock.yaml; reading it gives the same lock."""
    lines = ["# Written by `make lock`: what names and revisions meant when they were resolved.", "schema: 1"]
    lines.append("models:" if lock.models else "models: []")
    for model in lock.models:
        lines += _entry_lines(model)
    if lock.images:
        lines += ["images:", *(f"  {json.dumps(tag)}: {json.dumps(digest)}" for tag, digest in lock.images)]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, kw_only=True)
class LockChange:
    """One difference between two locks: which entry, which field, what it was (None: not there) and is.

    An image's digest has the name `images`, no revision, and the image as its field.
    """

    name: str
    revision: str
    field: str
    old: Json
    new: Json


def lock_changes(old: Lock, new: Lock) -> tuple[LockChange, ...]:
    """What differs, entry by entry in the order of the file; an entry that comes or goes is one change."""
    keys = sorted({(entry.name, entry.revision) for entry in (*old.models, *new.models)})
    models = [change for name, revision in keys for change in _entry_changes(old, new, name, revision)]
    images = _pair_changes("images", "", "", old.images, new.images)
    return (*models, *images)


def _entry_changes(old: Lock, new: Lock, name: str, revision: str) -> list[LockChange]:
    before, after = (lock.find(name=name, revision=revision) for lock in (old, new))
    if before is None or after is None:
        there = [None if entry is None else entry.digest or entry.source for entry in (before, after)]
        return [LockChange(name=name, revision=revision, field="entry", old=there[0], new=there[1])]
    pairs = [
        (field.name, getattr(before, field.name), getattr(after, field.name)) for field in fields(before)
    ]
    files = _pair_changes(name, revision, "files.", before.files, after.files)
    facts = [
        (f"config.{field.name}", getattr(before.facts, field.name), getattr(after.facts, field.name))
        for field in fields(before.facts)
    ]
    plain = [pair for pair in pairs if pair[0] not in ("facts", "files")]
    changes = [
        LockChange(name=name, revision=revision, field=field, old=was, new=is_now)
        for field, was, is_now in (*plain, *facts)
        if was != is_now
    ]
    return [*changes, *files]


def _pair_changes(
    name: str, revision: str, prefix: str, old: tuple[tuple[str, str], ...], new: tuple[tuple[str, str], ...]
) -> list[LockChange]:
    """Differences between two tables of digests by name."""
    before, after = dict(old), dict(new)
    return [
        LockChange(name=name, revision=revision, field=prefix + key, old=before.get(key), new=after.get(key))
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
    ]


def _entry_lines(model: LockedModel) -> list[str]:
    lines = []
    for field in fields(model):
        value = getattr(model, field.name)
        if field.name not in ("facts", "files") and value is not None:
            lines.append(f"{field.name}: {json.dumps(value, ensure_ascii=False)}")
    if model.files:
        lines += ["files:", *(f"  {json.dumps(name)}: {json.dumps(digest)}" for name, digest in model.files)]
    facts = [(field.name, getattr(model.facts, field.name)) for field in fields(model.facts)]
    known = [f"  {name}: {json.dumps(value)}" for name, value in facts if value is not None]
    lines += ["config:", *known] if known else ["config: {}"]
    return [f"{'  - ' if index == 0 else '    '}{line}" for index, line in enumerate(lines)]


def _entry(entry: Json, problems: list[Problem], *, file: str) -> LockedModel:
    if not isinstance(entry, dict):
        problems.append(Problem(key="models", problem="every entry must be a table", file=file))
        entry = {}
    reader = Fields(entry, problems, file)
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
        files=_digests(entry.get("files"), "files", _HEX64, problems, file=file),
        facts=read_facts(Fields(config if isinstance(config, dict) else {}, problems, file)),
    )


def _digests(
    value: Json, key: str, pattern: re.Pattern[str], problems: list[Problem], *, file: str
) -> tuple[tuple[str, str], ...]:
    """A table of digests by name, in the order of the names; none where the key is not there."""
    if value is None:
        return ()
    if not isinstance(value, dict):
        problems.append(Problem(key=key, problem="must be a table of digests by name", file=file))
        return ()
    found = []
    for name, digest in sorted(value.items()):
        if isinstance(digest, str) and pattern.fullmatch(digest):
            found.append((name, digest))
        else:
            problems.append(Problem(key=f"{key}.{name}", problem=f"cannot be {digest!r}", file=file))
    return tuple(found)
