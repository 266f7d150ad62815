"""Reads `compose/pins.yaml`: the versions and digests that images are built from.

In: the file. Out: frozen records. Refuses to know how anything is built.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, kw_only=True)
class Pins:
    """One field for each thing that a build needs; paths are relative to the repository."""

    base_tag: str
    base_image: str
    base_suite: str
    base_packages: tuple[str, ...]
    vllm_cpu_version: str
    vllm_cpu_lock: str
    vllm_cuda_version: str
    vllm_cuda_image: str
    gateway_version: str
    gateway_lock: str
    open_webui_version: str
    open_webui_locks: tuple[str, str]
    model_package_model: str
    model_package_lock: str
    compose_minimum: tuple[int, ...]
    compose_lock: str


def read_pins(repository: Path = REPOSITORY) -> Pins:
    raw = yaml.safe_load((repository / "compose/pins.yaml").read_text(encoding="utf-8"))
    vllm, webui = raw["vllm"], raw["open_webui"]
    return Pins(
        base_tag=raw["base"]["tag"],
        base_image=_with_digest(raw["base"]),
        base_suite=raw["base"]["suite"],
        base_packages=tuple(raw["base"]["packages"]),
        vllm_cpu_version=vllm["cpu"]["version"],
        vllm_cpu_lock=vllm["cpu"]["lock"],
        vllm_cuda_version=vllm["cuda"]["version"],
        vllm_cuda_image=_with_digest(vllm["cuda"]),
        gateway_version=raw["gateway"]["version"],
        gateway_lock=raw["gateway"]["lock"],
        open_webui_version=webui["version"],
        open_webui_locks=(webui["lock"], webui["application_lock"]),
        model_package_model=raw["model_package"]["model"],
        model_package_lock=raw["model_package"]["lock"],
        compose_minimum=version_numbers(raw["compose_plugin"]["minimum"]),
        compose_lock=raw["compose_plugin"]["lock"],
    )


def version_numbers(text: str) -> tuple[int, ...]:
    """`v2.30.0-desktop.1` → (2, 30, 0)."""
    match = re.match(r"v?(\d+(?:\.\d+)*)", text.strip())
    return tuple(int(number) for number in match[1].split(".")) if match else ()


def _with_digest(entry: dict[str, Any]) -> str:
    image, digest = str(entry["image"]), entry["digest"]
    return f"{image}@{digest}" if digest else image
