"""Building the images that differ from what they are built from.

In: the descriptions of `images`. Out: tagged images whose label `warmstack.inputs` is the hash of everything
they were built from; one with the right label is never built again. Wheels are fetched and images built side
by side, each as soon as what it needs is there. Refuses to know services and plans.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from warmops import base_image, console, wheelhouse
from warmops.docker import Docker
from warmops.images import BASE_DOCKERFILE, Image, Platform, context_files, describe_images, hash_inputs
from warmops.pins import REPOSITORY, Pins, read_pins

INPUTS_LABEL = "warmstack.inputs"
BUILD_SECONDS = 3600.0
_VENV_PATH = "/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Builds at a time: each copies and unpacks for most of its time, which one core does.
_SLOTS = min(3, os.cpu_count() or 1)


@dataclass(frozen=True, kw_only=True)
class Built:
    """What happened to one image: `seconds` is None when it was up to date."""

    tag: str
    seconds: float | None


def ensure_images(
    docker: Docker, platform: Platform, *, repository: Path = REPOSITORY, force: bool = False
) -> tuple[Built, ...]:
    """Build what is missing or differs from its inputs; returns one record for each image.

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
            stale = find_stale()
            seconds = _Builds(docker=docker, hashes=hashes, pins=pins, repository=repository).all(stale)
    return tuple(Built(tag=image.tag, seconds=seconds.get(image.tag)) for image in images)


@contextmanager
def _only_builder(repository: Path) -> Iterator[None]:
    """One command at a time builds in a checkout: the wheelhouse and the build contexts are folders."""
    folder = repository / ".wheelhouse"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            console.say("another command builds the images: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


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


class _Stopped(Exception):
    """Another build failed: this one was not begun."""


@dataclass(frozen=True, kw_only=True)
class _Builds:
    """The work of one `ensure_images`."""

    docker: Docker
    hashes: dict[str, str]
    pins: Pins
    repository: Path
    slots: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(_SLOTS))
    failed: threading.Event = field(default_factory=threading.Event)

    def all(self, stale: Sequence[Image]) -> dict[str, float]:
        """Fetch and build; returns tag → seconds. `stale` has each image after what it is built on."""
        if not stale:
            return {}
        console.heading(f"images to build: {', '.join(image.tag for image in stale)}")
        before = [self.docker.inspect(image.tag, "image") for image in stale]
        with ThreadPoolExecutor(max_workers=2 * len(stale) + 2) as pool:
            source = pool.submit(self._find_source, stale)
            fills = self._fetch(pool, stale)
            builds: dict[str, Future[float]] = {}
            for image in stale:
                needs: list[Future[Any]] = []
                needs += [fills[image.wheels.name]] if image.wheels else []
                needs += [builds[image.parent]] if image.parent in builds else []
                builds[image.tag] = pool.submit(self._build_when, needs, image, source)
            self._await([source, *fills.values(), *builds.values()])
        self._drop_replaced(before)
        return {tag: build.result() for tag, build in builds.items()}

    def _await(self, work: Sequence[Future[Any]]) -> None:
        """Until all is done. The first thing that fails is raised once what runs beside it has ended."""
        for one in work:
            one.add_done_callback(self._note)
        try:
            wait(work)
        except BaseException:
            self.failed.set()
            raise
        problems = [problem for one in work if (problem := one.exception()) is not None]
        for problem in sorted(problems, key=lambda problem: isinstance(problem, _Stopped)):
            raise problem

    def _note(self, done: Future[Any]) -> None:
        if done.exception() is not None:
            self.failed.set()

    def _find_source(self, stale: Sequence[Image]) -> str | None:
        """What the base image is made from; None when it is not to be built."""
        if not any(image.dockerfile == BASE_DOCKERFILE for image in stale):
            return None
        with console.working("getting Debian for the base image"):
            return base_image.find_source(self.docker, self.pins)

    def _fetch(self, pool: ThreadPoolExecutor, stale: Sequence[Image]) -> dict[str, Future[Path]]:
        """Name of each list of wheels → the work that fetches it, and a watcher that says how far it is."""
        lists = [image.wheels for image in stale if image.wheels]
        total = sum(len(wheelhouse.read_requirements(lock)) for one in lists for lock in one.locks)
        come: list[None] = []  # one entry a wheel: appending is safe between threads
        root = self.repository / ".wheelhouse"
        fills = {
            one.name: pool.submit(wheelhouse.fill, one, root, lambda: come.append(None)) for one in lists
        }
        if total:
            pool.submit(_watch_fetching, list(fills.values()), total, lambda: len(come))
        return fills

    def _build_when(self, needs: Sequence[Future[Any]], image: Image, source: Future[str | None]) -> float:
        if image.dockerfile == BASE_DOCKERFILE:
            needs = [*needs, source]
        for need in needs:
            if need.exception() is not None:
                raise _Stopped
        with self.slots:
            if self.failed.is_set():
                raise _Stopped
            found = source.result() if image.dockerfile == BASE_DOCKERFILE else None
            return self._make(image, found)

    def _make(self, image: Image, source: str | None) -> float:
        started = time.monotonic()
        context = _lay_context(image, self.repository)
        try:
            with console.working(f"building {image.tag}"):
                if image.wheels is None:
                    self._build(image, context, source)
                else:
                    self._install(image, context)
        finally:
            shutil.rmtree(context, ignore_errors=True)
        seconds = time.monotonic() - started
        console.say(f"{image.tag}: built in {seconds:.0f} s")
        return seconds

    def _build(self, image: Image, context: Path, source: str | None) -> None:
        """`docker build` of the Dockerfile."""
        arguments = dict(image.arguments)
        if image.parent:
            arguments[image.parent_argument] = image.parent
        if source:
            arguments["SOURCE"] = source
        # Without a network a build cannot fetch anything that no lock names.
        offline = image.offline or (source is not None and source.startswith("warmstack/"))
        classic = {} if _has_buildx(self.docker) else {"DOCKER_BUILDKIT": "0"}
        replace(self.docker, environment=classic).run(
            "build",
            *(("--network", "none") if offline else ()),
            *("--label", f"{INPUTS_LABEL}={self.hashes[image.tag]}", "--tag", image.tag),
            *(part for name, value in arguments.items() for part in ("--build-arg", f"{name}={value}")),
            str(context),
            timeout_seconds=BUILD_SECONDS,
            output=False,
        )

    def _install(self, image: Image, context: Path) -> None:
        """Run the script in a container of the parent, and make an image of what it leaves."""
        name = f"{re.sub(r'[^a-z0-9]+', '-', image.tag)}-{os.getpid()}"
        changes = (f"LABEL {INPUTS_LABEL}={self.hashes[image.tag]}", f"ENV PATH={_VENV_PATH}", 'CMD ["sh"]')
        # Without SELinux's labels a container may not read a folder of ours; it only reads here.
        place = ("--network", "none", "--security-opt", "label=disable", "--volume", f"{context}:/mnt:ro")
        limits: dict[str, Any] = {"timeout_seconds": BUILD_SECONDS, "output": False}
        try:
            self.docker.run("run", "--name", name, *place, str(image.parent), "sh", "/mnt/install", **limits)
            options = (part for change in changes for part in ("--change", change))
            self.docker.run("commit", *options, name, image.tag, **limits)
        finally:
            self.docker.capture("rm", "--force", name, check=False, timeout_seconds=300)

    def _drop_replaced(self, before: Sequence[dict[str, Any] | None]) -> None:
        """Free the images that had the tags before; Docker keeps one that a container still uses."""
        for image in before:
            old = self.docker.inspect(image["Id"], "image") if image else None
            if old is not None and not old.get("RepoTags"):  # the build gave its tag to another image
                self.docker.capture("rmi", old["Id"], check=False, timeout_seconds=300)


def _watch_fetching(fills: Sequence[Future[Path]], total: int, come: Callable[[], int]) -> None:
    """Say how far pip is: a bar on a terminal, a line now and then elsewhere."""
    started = time.monotonic()
    console.say(f"fetching {total} Python packages with pip")
    seen = 0
    with console.counting("fetching Python packages", total) as advance:
        while wait(fills, timeout=0.2).not_done:
            now = come()
            advance(now - seen)
            seen = now
    if not any(fill.exception() for fill in fills):
        console.say(f"{total} Python packages are there ({time.monotonic() - started:.0f} s)")


def _lay_context(image: Image, repository: Path) -> Path:
    """A folder with exactly what the build may see; wheels are hard links, so that nothing is copied."""
    context = repository / ".wheelhouse" / "context" / image.tag.replace("/", "_").replace(":", "_")
    shutil.rmtree(context, ignore_errors=True)
    context.mkdir(parents=True)
    shutil.copy2(
        repository / image.dockerfile, context / ("Dockerfile" if image.wheels is None else "install")
    )
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
