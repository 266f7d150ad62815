"""The only module that starts `docker`.

In: argument lists. Out: what the command printed, as text or parsed JSON, or a `UserError` with the last
lines of its stderr. Refuses to know services, models and plans: whoever calls says which container and which
command.

Each command is echoed to stderr as it could be pasted into a shell, secrets masked; `quiet=True` is for
probes that run often. `COMPOSE_*` variables of the caller's shell are not passed on: they would change what a
rendered file means.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from warmops import console
from warmplan.errors import Problem, UserError

PROBE_SECONDS = 20.0
COMMAND_SECONDS = 600.0
TAIL_LINES = 12

# Words of the docker client for "there is no engine to talk to", over Engine 20.10 to 28.
_NO_ENGINE = (
    "Cannot connect to the Docker daemon",
    "permission denied while trying to connect",
    "error during connect",
)
_SECRET_NAME = re.compile(r"(?i)(token|password|secret|api_?key|credential)")
_ASSIGNMENT = re.compile(r"^(?:--?[\w-]+=)?([A-Za-z_][A-Za-z0-9_]*)=(.+)$", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Completed:
    """A docker command that ended. After `run`, `stderr` holds the last lines of both streams."""

    command: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        return self.returncode == 0


class DockerError(UserError):
    """A docker command failed; `completed` is None when it could not be started or gave no answer in time."""

    def __init__(self, problem: str, hint: str | None = None, completed: Completed | None = None) -> None:
        super().__init__([Problem(key="", problem=problem, hint=hint)], exit_code=3)
        self.completed = completed


@dataclass(frozen=True, kw_only=True)
class Docker:
    """One docker client. `secrets` are values that never appear in an echo or an error."""

    binary: str = "docker"
    secrets: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(
        self,
        *arguments: str,
        quiet: bool = False,
        output: bool = True,
        check: bool = True,
        timeout_seconds: float | None = COMMAND_SECONDS,
        directory: Path | None = None,
    ) -> Completed:
        """Run for a person: the command is echoed, then both streams go to stderr line by line.

        `output` False keeps the streams for the error alone; `quiet` leaves out the echo as well.
        """
        shown = output and not quiet
        command = self._start(arguments, quiet)
        tail: deque[str] = deque(maxlen=TAIL_LINES)
        expired = threading.Event()
        with self._popen(command, directory) as process, _time_limit(process, timeout_seconds, expired):
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    tail.append(line.rstrip())
                    if shown:
                        sys.stderr.write(line)
                        sys.stderr.flush()
                returncode = process.wait()
            except BaseException:
                process.kill()
                raise
        if expired.is_set() and timeout_seconds is not None:
            raise self._no_answer(command, timeout_seconds)
        completed = Completed(command=command, returncode=returncode, stdout="", stderr="\n".join(tail))
        # The person has read the output already: the error repeats the last line alone.
        return self._checked(completed, check, lines=1 if shown else TAIL_LINES)

    def capture(
        self,
        *arguments: str,
        quiet: bool = True,
        check: bool = True,
        timeout_seconds: float = PROBE_SECONDS,
        directory: Path | None = None,
        stdin: str | None = None,
        merged: bool = False,
    ) -> Completed:
        """Run for the program: output comes back as text; `merged` puts stderr into stdout in order."""
        command = self._start(arguments, quiet)
        try:
            done = subprocess.run(
                command,
                input=stdin,
                stdin=subprocess.DEVNULL if stdin is None else None,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if merged else subprocess.PIPE,
                text=True,
                encoding="utf-8",
                errors="replace",
                timeout=timeout_seconds,
                cwd=directory,
                env=self._environment(),
                check=False,
            )
        except FileNotFoundError:
            raise self._no_client() from None
        except subprocess.TimeoutExpired:
            raise self._no_answer(command, timeout_seconds) from None
        completed = Completed(
            command=command, returncode=done.returncode, stdout=done.stdout, stderr=done.stderr or ""
        )
        return self._checked(completed, check, lines=TAIL_LINES)

    @contextmanager
    def stream(self, *arguments: str, quiet: bool = True) -> Iterator[Iterator[str]]:
        """Lines of a command that is killed when the block is left: `logs --follow`, `events`."""
        command = self._start(arguments, quiet)
        process = self._popen(command, None)
        try:
            assert process.stdout is not None
            yield (line.rstrip("\n") for line in process.stdout)
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()

    # Questions that several commands ask.

    def answers(self) -> bool:
        """True when an engine answers this client."""
        try:
            return self.capture("version", "--format", "{{.Server.Version}}", check=False).ok
        except DockerError:
            return False

    def inspect(self, name: str, kind: str = "container") -> dict[str, Any] | None:
        """`docker inspect` of one container, image, volume or network; None when there is none."""
        completed = self.capture("inspect", "--type", kind, name, check=False)
        if completed.ok:
            found: dict[str, Any] = json.loads(completed.stdout)[0]
            return found
        if re.search(r"(?i)no such|not found", completed.stderr):
            return None
        self._checked(completed, True, lines=TAIL_LINES)
        return None

    def containers(self, *filters: str, all_states: bool = True) -> list[str]:
        """Ids of the containers that match all filters, such as `label=com.docker.compose.project=x`."""
        options = [part for one in filters for part in ("--filter", one)]
        state = ["--all"] if all_states else []
        return self.capture("ps", "--quiet", "--no-trunc", *state, *options).stdout.split()

    def logs(self, container: str, *, since: str | None = None, tail: int | None = None) -> str:
        """Both streams of a container's log in order; `since` is an RFC 3339 time or unix seconds."""
        options = [
            *(("--since", since) if since else ()),
            *(("--tail", str(tail)) if tail is not None else ()),
        ]
        return self.capture("logs", *options, container, merged=True, timeout_seconds=60).stdout

    def execute(
        self,
        container: str,
        *argv: str,
        check: bool = True,
        quiet: bool = True,
        timeout_seconds: float = 60,
        stdin: str | None = None,
    ) -> Completed:
        """Run a command inside a running container."""
        listens = ("--interactive",) if stdin is not None else ()
        return self.capture(
            "exec",
            *listens,
            container,
            *argv,
            check=check,
            quiet=quiet,
            timeout_seconds=timeout_seconds,
            stdin=stdin,
        )

    def compose(
        self, *, project: str, file: Path, project_directory: Path, overrides: tuple[Path, ...] = ()
    ) -> Compose:
        return Compose(
            docker=self, project=project, file=file, project_directory=project_directory, overrides=overrides
        )

    def mask(self, text: str) -> str:
        for secret in sorted((s for s in self.secrets if s), key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    def shown(self, command: Iterable[str]) -> str:
        """The command as a person could paste it, with secret values masked."""
        return self.mask(shlex.join(_mask_assignment(part) for part in command))

    # How commands are started and how failures read.

    def _start(self, arguments: Sequence[str], quiet: bool) -> tuple[str, ...]:
        command = (self.binary, *arguments)
        if not quiet:
            console.echo_command(self.shown(command))
        return command

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("COMPOSE_")}
        return {**kept, **self.environment}

    def _popen(self, command: Sequence[str], directory: Path | None) -> subprocess.Popen[str]:
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                encoding="utf-8",
                errors="replace",
                cwd=directory,
                env=self._environment(),
            )
        except FileNotFoundError:
            raise self._no_client() from None

    def _checked(self, completed: Completed, check: bool, *, lines: int) -> Completed:
        if completed.ok or not check:
            return completed
        said = self.mask(_tail(completed.stderr or completed.stdout, lines))
        if any(words in said for words in _NO_ENGINE):
            raise DockerError(
                f"the Docker engine does not answer: {said.splitlines()[-1]}",
                "start it (systemctl start docker) or join the group docker; as root, `make up` starts it",
                completed,
            )
        what = self.shown(completed.command)
        raise DockerError(f"`{what}` ended with exit code {completed.returncode}: {said}", None, completed)

    def _no_answer(self, command: Sequence[str], seconds: float) -> DockerError:
        return DockerError(
            f"`{self.shown(command)}` gave no answer in {seconds:g} s", "look at the engine's log"
        )

    def _no_client(self) -> DockerError:
        return DockerError(
            f"the command {self.binary} was not found", "install Docker Engine, or run `make up` as root"
        )


@dataclass(frozen=True, kw_only=True)
class Compose:
    """One Compose project: every command carries project, file and project directory, none is looked up."""

    docker: Docker
    project: str
    file: Path
    project_directory: Path
    overrides: tuple[Path, ...] = ()  # laid over `file`, as Compose merges files
    profiles: tuple[str, ...] = ()

    def arguments(self, *arguments: str) -> tuple[str, ...]:
        where = ["--project-directory", str(self.project_directory)]
        where += [word for file in (self.file, *self.overrides) for word in ("--file", str(file))]
        where += [word for profile in self.profiles for word in ("--profile", profile)]
        return ("compose", "--project-name", self.project, *where, *arguments)

    def with_profiles(self, *profiles: str) -> Compose:
        """The same project with the services of these profiles too; an unknown profile is none."""
        return replace(self, profiles=profiles)

    def run(self, *arguments: str, quiet: bool = False, check: bool = True, **options: Any) -> Completed:
        """As `Docker.run`, without Compose's progress: several lines for each volume, network, container."""
        command = self.arguments(*arguments)
        options = {"quiet": quiet, "check": check, "output": False, **options}
        if quiet:
            return self.docker.run(*command, **options)
        with console.working(f"docker compose {arguments[0]}"):
            return self.docker.run(*command, **options)

    def capture(self, *arguments: str, check: bool = True, **options: Any) -> Completed:
        """As `Docker.capture`: output comes back."""
        return self.docker.capture(*self.arguments(*arguments), check=check, **options)

    def container(self, service: str) -> str | None:
        """Id of the service's container in any state; None when it has none."""
        found = self.docker.containers(
            f"label=com.docker.compose.project={self.project}", f"label=com.docker.compose.service={service}"
        )
        return found[0] if found else None

    def config_hashes(self) -> dict[str, str]:
        """Compose's own hash of each service, the one it compares to decide on recreating a container."""
        lines = self.capture("config", "--hash", "*").stdout.splitlines()
        return dict(line.split(maxsplit=1) for line in lines if line.strip())

    def config(self) -> dict[str, Any]:
        """The file as Compose reads it."""
        read: dict[str, Any] = json.loads(self.capture("config", "--format", "json").stdout)
        return read


@contextmanager
def _time_limit(
    process: subprocess.Popen[str], seconds: float | None, expired: threading.Event
) -> Iterator[None]:
    """Kill the process when the block takes longer; `expired` tells that from a failure of its own."""

    def end() -> None:
        expired.set()
        process.kill()

    timer = threading.Timer(seconds or 0, end)
    if seconds is not None:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _mask_assignment(part: str) -> str:
    match = _ASSIGNMENT.match(part)
    # `_FILE` names a path, which is no secret and needed to paste the command.
    if match is None or not _SECRET_NAME.search(match[1]) or match[1].upper().endswith("_FILE"):
        return part
    return part[: match.start(2)] + "***"


def _tail(text: str, lines: int) -> str:
    kept = [line for line in text.splitlines() if line.strip()][-lines:]
    return "\n".join(kept) or "no message"
