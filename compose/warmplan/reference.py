"""docs/environment.md: the table of keys as a page, so that the documentation cannot fall behind.

In: the tables of `settings`, `compatibility`, `flags`, `architecture`, `constants` and `levers`.
Out: Markdown. It adds no fact of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from warmplan.architecture import FAMILIES
from warmplan.compatibility import FEATURES, MODES, QUANTISATIONS, VERSIONS, refuse_mode
from warmplan.constants import CONSTANTS, GIB
from warmplan.flags import FLAGS, Scope, compact_json
from warmplan.levers import LEVERS, MEASURED
from warmplan.settings import KEYS, Key, Kind

_HEAD = """\
# environment.yaml

Generated from the table in `compose/warmplan/settings.py`. Do not edit.

Keys with a dot are nested: `model.name` is the key `name` under `model:`. Text is taken as typed: `no`, `012`
and `12:34` stay what they are. Unknown keys, wrong types and contradictions are errors with file and line,
all at once. "Moves the weights" says whether a change makes another weight-cache service, which drops the
weights; `up` never does that unless told to by name.

| key | value | default | moves the weights | meaning |
|---|---|---|---|---|
"""


def render_reference() -> str:
    """The text of docs/environment.md."""
    rows = "\n".join(_row(key) for key in KEYS)
    return _HEAD + rows + "\n\n" + "\n".join(_rest()) + "\n"


def _row(key: Key) -> str:
    kind = f"{key.kind.value} {', '.join(f'`{choice}`' for choice in key.choices)}".strip()
    if key.kind in (Kind.INTEGER, Kind.NUMBER):
        low = "" if key.minimum is None else f" from {key.minimum:g}"
        high = "" if key.maximum is None else f" to {key.maximum:g}"
        kind = f"{kind}{low}{high}"
    default = "required" if key.required else key.default_text
    if key.default is not None:
        value = key.default
        default = f"`{value if isinstance(value, str) else compact_json(value)}`"
    doc = f"{key.doc} Left out where the command line names another model." if key.of_model else key.doc
    return f"| `{key.name}` | {kind} | {default} | {key.moves.value} | {doc} |"


def _rest() -> Iterator[str]:
    yield "## Flags that both commands get"
    yield ""
    yield "Under `engine.arguments` these decide the weights, so `vllm preload` gets them too:"
    both = sorted(flag.name for flag in FLAGS.values() if flag.scope is Scope.BOTH and flag.owner is None)
    yield f"{', '.join(f'`{name}`' for name in both)}."
    yield ""
    yield "## Shorter restarts on a GPU"
    yield ""
    yield f"Off unless set, and no change of the weights ({MEASURED})."
    yield ""
    yield "| key | tried value | one restart with it alone | risk |"
    yield "|---|---|---|---|"
    for lever in LEVERS:
        yield f"| `{lever.key}` | `{lever.value}` | {lever.gain} | {lever.risk} |"
    yield ""
    yield "## Versions of vLLM"
    yield ""
    names = [version.name for version in VERSIONS]
    yield f"| | {' | '.join(names)} |"
    yield f"|---|{'---|' * len(names)}"
    for platform in ("cpu", "cuda"):
        yield _line(f"supported on `{platform}`", [not version.lacking(platform) for version in VERSIONS])
    for feature in FEATURES:
        yield _line(feature.name, [feature in version.features for version in VERSIONS])
    yield f"| fields of the weight-cache key | {' | '.join(str(one.key_fields) for one in VERSIONS)} |"
    yield ""
    yield "## Quantisation"
    yield ""
    yield "| method | with the weight cache |"
    yield "|---|---|"
    for entry in QUANTISATIONS:
        answer = entry.known if entry.refused is None else f"refused: {entry.refused}; {entry.instead}"
        yield f"| `{entry.method}` | {answer} |"
    yield ""
    yield "Any other method is refused until it has been tried."
    yield ""
    yield "## Models whose memory is computed"
    yield ""
    yield "From config.json, tensor by tensor: weights of each rank, and the KV cache of a token. Others need"
    yield "`model.weight_gib` (unless safetensors headers were read) and `model.kv_bytes_per_token`."
    yield ""
    yield f"{', '.join(f'`{name}`' for name in sorted(FAMILIES))}."
    yield ""
    yield "## Sizes that no formula gives"
    yield ""
    yield "| what | GiB | bytes | source |"
    yield "|---|---:|---:|---|"
    for constant in CONSTANTS:
        yield f"| {constant.name} | {constant.bytes / GIB:.2f} | {constant.bytes} | {constant.source} |"
    yield ""
    yield "## Modes"
    yield ""
    for mode in MODES:
        yield f"- `{mode}`: {refuse_mode(mode) or 'the weight cache holds the weights, engines map them'}."


def _line(name: str, answers: list[bool]) -> str:
    return f"| {name} | {' | '.join('yes' if answer else 'no' for answer in answers)} |"
