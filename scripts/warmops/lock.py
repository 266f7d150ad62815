"""`lock`: what an environment's model name and revision mean now, written into its lock.yaml.

In: the environment, the hub or the model files on disk, and Docker's digests of images. Out: lock.yaml,
`compose.yaml` and `plan.md` rendered again, and on stdout what changed, old → new. With `--offline` no hub is
asked and the newest snapshot on disk counts. The files of a hub model are fetched into the shared volume: its
content is told by digests of what arrived, not by what a hub says.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from warmops import pins as build_pins
from warmops.console import failure, say
from warmops.docker import Docker
from warmops.hostfacts import nvidia_is_usable
from warmops.model import local_folder, store_for
from warmops.pins import REPOSITORY
from warmops.render import render_environment, write_changed
from warmops.wishes import choose_environment
from warmplan import (
    Lock,
    LockChange,
    Pins,
    Spec,
    build_spec,
    lock_changes,
    model_from_manifest,
    read_environment,
    read_lock,
    read_pins,
    render_lock,
)
from warmplan.placement import HOST_HUB, HUB_VOLUME


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--env", metavar="NAME", help="environment; default: gpu where NVIDIA works, else cpu"
    )
    parser.add_argument("--offline", action="store_true", help="ask no hub: the snapshot on disk counts")


def run(arguments: argparse.Namespace) -> int:
    docker = Docker()
    folder = choose_environment(arguments.env, lambda: nvidia_is_usable(docker))
    spec = build_spec(environment=read_environment(folder))
    pins = read_pins(REPOSITORY / "compose/pins.yaml")
    manifest = resolve(docker, spec, pins, offline=arguments.offline)
    old = read_lock(folder / "lock.yaml")
    new = replace(old.replaced(model_from_manifest(manifest)), images=image_digests(docker, spec, pins))
    changes = lock_changes(old, new)
    write_lock(folder / "lock.yaml", new)
    written = write_changed(render_environment(folder))
    if arguments.json:
        print(json.dumps(_as_facts(spec, changes, written), indent=2, ensure_ascii=False))
    else:
        _show(folder, changes, written)
    return 0


def resolve(docker: Docker, spec: Spec, pins: Pins, *, offline: bool) -> dict[str, Any]:
    """The manifest of the model: of the folder as it is, of the snapshot on disk, or as the hub says now.

    Raises UserError: exit code 1 offline without a snapshot and for files that are not what the hub names, 2
    when the model does not exist or is gated, 3 when neither hub nor package has it.
    """
    name, revision = spec.model.name, spec.model.revision
    if spec.model.is_local:
        return local_folder(name)
    store = store_for(docker, fetching_image(docker, spec, pins), spec)
    if store.hub == HOST_HUB and not Path(HOST_HUB).is_dir():
        store = replace(store, hub=HUB_VOLUME)  # a laptop that locks for a server
    if offline or spec.model.offline:
        return store.find_or_refuse(name, revision)
    return store.get(name, revision)


def fetching_image(docker: Docker, spec: Spec, pins: Pins) -> str:
    """A vLLM image to run `warmstack-fetch` in: of the environment's platform, else of the other one.

    A laptop that locks for a GPU server has the CPU image only; both hold the same program.
    """
    other = "cpu" if spec.platform == "cuda" else "cuda"
    for platform in (spec.platform, other):
        tag = f"warmstack/vllm:{pins.vllm(platform)}-{platform}"
        if docker.inspect(tag, "image") is not None:
            return tag
    raise failure("there is no image to fetch model files with", "build one first: make images", exit_code=3)


def image_digests(docker: Docker, spec: Spec, pins: Pins) -> tuple[tuple[str, str], ...]:
    """Digests that a registry gave the images this environment starts from; one made here has none."""
    build = build_pins.read_pins()
    official = build.vllm_cuda_image if spec.platform == "cuda" else build.base_image
    found = {}
    for image in {official, build.base_image}:
        inspected = docker.inspect(image, "image")
        digest = registry_digest(inspected or {}, image)
        if digest is not None:
            found[image.partition("@")[0]] = digest
    return tuple(sorted(found.items()))


def registry_digest(inspected: Mapping[str, Any], image: str) -> str | None:
    """The `sha256:…` of an image's own repository; None when Docker knows none."""
    repository = _repository(image)
    pairs: Iterable[tuple[str, str, str]] = (
        str(entry).partition("@") for entry in inspected.get("RepoDigests") or ()
    )
    return next((digest for name, _, digest in pairs if _repository(name) == repository), None)


def write_lock(path: Path, lock: Lock) -> None:
    part = path.with_name(f"{path.name}.part")
    part.write_text(render_lock(lock), encoding="utf-8")
    part.replace(path)


def change_line(change: LockChange) -> str:
    """One change as people read it, old → new."""
    where = f"{change.name}@{change.revision}" if change.revision else change.name
    return f"{where}: {change.field}: {_shown(change.old)} → {_shown(change.new)}"


def _as_facts(spec: Spec, changes: tuple[LockChange, ...], written: list[str]) -> dict[str, Any]:
    return {
        "environment": spec.environment,
        "changes": [
            {"model": c.name, "revision": c.revision, "field": c.field, "old": c.old, "new": c.new}
            for c in changes
        ],
        "written": written,
    }


def _show(folder: Path, changes: tuple[LockChange, ...], written: list[str]) -> None:
    for change in changes:
        print(change_line(change))
    print(f"{folder.name}: {len(changes)} changes in lock.yaml" if changes else f"{folder.name}: unchanged")
    for name in written:
        say(f"wrote {name}")


def _repository(image: str) -> str:
    """`docker.io/library/debian:bookworm@sha256:…` → `debian`: no default registry, tag or digest."""
    name = image.partition("@")[0]
    head, slash, last = name.rpartition("/")
    name = f"{head}{slash}{last.partition(':')[0]}"
    return name.removeprefix("docker.io/").removeprefix("library/")


def _shown(value: object) -> str:
    return "nothing" if value is None else json.dumps(value, ensure_ascii=False).strip('"')
