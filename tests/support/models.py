"""The public models of tests/data/models: their facts, tensors and published sizes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from warmplan.architecture import list_tensors, weight_format
from warmplan.errors import Problem
from warmplan.facts import Fields, ModelFacts, read_facts
from warmplan.lock import HEADERS, LockedModel
from warmplan.weights import Format, Tensor

FOLDER = Path(__file__).resolve().parents[1] / "data/models"
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


@dataclass(frozen=True, kw_only=True)
class PublicModel:
    """One file. `tensors` is None for an architecture that the plan does not compute."""

    name: str
    facts: ModelFacts
    tensors: tuple[Tensor, ...] | None
    form: Format
    published_bytes: int | None


def locked_model(name: str) -> LockedModel:
    """That model as if it had been resolved, under the name that `support.wishes` uses."""
    model = public_model(name)
    size = model.published_bytes
    return LockedModel(
        name="Org/Model",
        revision="main",
        source="hub",
        digest="ab" * 32,
        weight_bytes=size,
        weight_bytes_from=None if size is None else HEADERS,
        facts=model.facts,
    )


@cache
def public_model(name: str) -> PublicModel:
    """The model of tests/data/models/<name>.json; its config must be read without a complaint."""
    content = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    problems: list[Problem] = []
    facts = read_facts(Fields(content["config"], problems, name))
    assert not problems
    return PublicModel(
        name=content["model"],
        facts=facts,
        tensors=list_tensors(facts),
        form=weight_format(facts, 2),
        published_bytes=content["published_bytes"],
    )
