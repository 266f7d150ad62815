"""Why an engine would or would not map held weights, field by field.

In: the fields of a plan's identity, and those of the weight cache that runs: read from its command,
environment and image as Docker shows them, so nothing has to be remembered beside the container. Out:
`Explanation`, data for a table and a sentence. It asks no container and no socket.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from warmplan.flags import FLAGS, Scope, variable_scope, words
from warmplan.identity import Identity

_ABSENT: Final = "not set"
_MEANING: Final = {
    "content": "digest of the files that decide the weights",
    "platform": "GPU memory or shared memory",
    "vllm": "vLLM's version",
    "tensor": "ranks that the weights are split over",
    "dtype": "number format",
    "quantization": "quantisation",
    "trust_remote_code": "whether code of the checkpoint runs",
}


@dataclass(frozen=True, kw_only=True)
class FieldComparison:
    """One field: its name, what it means, what is held (None: nothing is), what the plan wants."""

    name: str
    meaning: str
    held: str | None
    wanted: str

    @property
    def equal(self) -> bool:
        return self.held == self.wanted


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """`hit`: an engine of this plan would map what is held. `sentence` says it for a person."""

    hit: bool
    sentence: str
    fields: tuple[FieldComparison, ...]


def explain_identity(wanted: Identity, held: Mapping[str, str] | None) -> Explanation:
    """Compare a plan's identity with the fields of a running weight cache (None: none runs)."""
    fields = _as_written(wanted)
    names = list(dict.fromkeys((*fields, *(held or {}))))
    compared = tuple(
        FieldComparison(
            name=name,
            meaning=_MEANING.get(name, "decides the weights or their layout"),
            held=None if held is None else held.get(name, _ABSENT),
            wanted=fields.get(name, _ABSENT),
        )
        for name in names
    )
    different = [field.name for field in compared if not field.equal]
    if held is None:
        sentence = "would miss: no weight cache holds weights"
    elif not wanted.locked:
        sentence = "cannot be said: the plan's model is not resolved; `make up` and `make lock` resolve it"
    elif different:
        sentence = f"would miss: {', '.join(different)} {'differ' if len(different) > 1 else 'differs'}"
    else:
        sentence = "would hit: every field is equal"
    return Explanation(
        hit=held is not None and wanted.locked and not different, sentence=sentence, fields=compared
    )


def held_fields(*, command: Sequence[str], environment: Mapping[str, str], image: str) -> dict[str, str]:
    """The identity fields of a weight-cache container.

    `command` are the words of `vllm preload`, `environment` its variables, `image` the name with the tag
    `<vllm version>-<platform>`. A field that is not there is left out.
    """
    given = _options(command)
    version = image.rpartition(":")[2].rpartition("-")[0]
    fields = {
        "content": environment.get("WARMSTACK_MODEL_DIGEST"),
        "platform": environment.get("WARMSTACK_PLATFORM"),
        "vllm": version or None,
        "tensor": given.get("tensor-parallel-size"),
        "dtype": given.get("dtype"),
        "quantization": given.get("quantization", "as in the checkpoint"),
        "trust_remote_code": "true" if "trust-remote-code" in given else "false",
    }
    flags = {
        f"--{name}": value
        for name, value in sorted(given.items())
        if name in FLAGS and FLAGS[name].scope is Scope.BOTH and FLAGS[name].owner is None
    }
    variables = {name: value for name, value in environment.items() if variable_scope(name) is Scope.BOTH}
    return {
        **{name: value for name, value in fields.items() if value is not None},
        **flags,
        **dict(sorted(variables.items())),
    }


def _as_written(identity: Identity) -> dict[str, str]:
    """The identity's fields with flags as the command line shows them."""
    fields = dict(identity.fields)
    flags = {name.removeprefix("--"): value for name, value in fields.items() if name.startswith("--")}
    line = [word for name, value in flags.items() for word in words(FLAGS[name], json.loads(value))]
    others = {name: value for name, value in fields.items() if not name.startswith("--")}
    return {**others, **{f"--{name}": value for name, value in _options(line).items()}}


def _options(line: Sequence[str]) -> dict[str, str]:
    """The values of a command line by flag: `true` for a flag alone, the items of a list after blanks."""
    found: dict[str, str] = {}
    name = None
    for word in line:
        if not word.startswith("--"):
            if name is not None:
                found[name] = f"{found[name]} {word}".removeprefix("true ")
            continue
        name, equals, value = word[2:].partition("=")
        if not equals and name.startswith("no-"):
            name, value = name.removeprefix("no-"), "false"
        found[name] = value if equals or value else "true"
    return found
