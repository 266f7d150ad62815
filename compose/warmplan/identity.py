"""What must be equal for weights to be reused.

In: a spec, the resolved model (or none), and the vLLM version. Out: `Identity`, a hash and the fields it is
made of. It does not read checkpoints: content comes as a digest. vLLM's own key hashes safetensors headers
only, so two fine-tunes of one architecture are equal to it; this one differs.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from warmplan.document import Json
from warmplan.flags import FLAGS, Scope, compact_json, variable_scope
from warmplan.lock import LockedModel
from warmplan.spec import Spec

SHORT: Final = 16


@dataclass(frozen=True, kw_only=True)
class Identity:
    """`value` is 64 hex. `locked` False: the content is unknown, and `value` only stands for the wish."""

    value: str
    locked: bool
    fields: tuple[tuple[str, str], ...]

    @property
    def short(self) -> str:
        return self.value[:SHORT]


def compute_identity(*, spec: Spec, model: LockedModel | None, vllm_version: str) -> Identity:
    """The identity of the weights of this wish. Equal fields give an equal value, on every host."""
    digest = model.digest if model is not None else None
    content = digest or f"unlocked {spec.model.name}@{spec.model.revision}"
    fields = (
        ("content", content),
        ("platform", spec.platform),
        ("vllm", vllm_version),
        ("tensor", str(spec.tensor)),
        ("dtype", spec.model.dtype),
        ("quantization", spec.model.quantization or "as in the checkpoint"),
        ("trust_remote_code", compact_json(spec.model.trust_remote_code)),
        *((f"--{name}", compact_json(value)) for name, value in shared_arguments(spec)),
        *shared_variables(spec),
    )
    lines = "".join(f"{name}={value!r}\n" for name, value in fields)
    value = hashlib.sha256(lines.encode()).hexdigest()
    return Identity(value=value, locked=digest is not None, fields=fields)


def shared_arguments(spec: Spec) -> tuple[tuple[str, Json], ...]:
    """The flags of the engine that decide the weights, by name; both commands get them."""
    return tuple((name, value) for name, value in spec.engine.arguments if FLAGS[name].scope is Scope.BOTH)


def shared_variables(spec: Spec) -> tuple[tuple[str, str], ...]:
    """The variables of the engine that decide the layout of the weights; both containers get them."""
    return tuple(pair for pair in spec.engine.environment if variable_scope(pair[0]) is Scope.BOTH)
