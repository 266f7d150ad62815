"""The versions that the plan names, read from compose/pins.yaml.

In: the file. Out: `Pins`. The rest of the file (locks, digests, packages) is for whoever builds the images.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from warmplan.document import Document, Table, Text, read_document
from warmplan.errors import Problem, UserError


@dataclass(frozen=True, kw_only=True)
class Pins:
    """Versions as text: vLLM on each platform, Caddy, Open WebUI."""

    vllm_cpu: str
    vllm_cuda: str
    gateway: str
    open_webui: str

    def vllm(self, platform: str) -> str:
        """The version of vLLM on `cpu` or `cuda`."""
        return self.vllm_cpu if platform == "cpu" else self.vllm_cuda


def read_pins(path: Path) -> Pins:
    """Read the versions. Errors: `UserError` (exit code 2) when the file or one of them is missing."""
    document = read_document(path)
    problems: list[Problem] = []
    pins = Pins(
        vllm_cpu=_version(document, "vllm.cpu", problems),
        vllm_cuda=_version(document, "vllm.cuda", problems),
        gateway=_version(document, "gateway", problems),
        open_webui=_version(document, "open_webui", problems),
    )
    if problems:
        raise UserError(problems)
    return pins


def _version(document: Document, key: str, problems: list[Problem]) -> str:
    table: object = document.root
    for part in (*key.split("."), "version"):
        entry = table.get(part) if isinstance(table, Table) else None
        table = entry.value if entry is not None else None
    if isinstance(table, Text) and table.text:
        return table.text
    problems.append(Problem(key=f"{key}.version", problem="is missing", file=document.file))
    return ""
