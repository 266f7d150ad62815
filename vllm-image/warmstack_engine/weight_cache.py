"""Waits for the weight cache and judges whether this engine may use it.

In: the supervisor's /status, the identity this engine needs, the model folder. Out: `Held` or `Miss`.
Refuses to know: vLLM's own socket. It asks the supervisor only, so a probe never blocks an engine that maps.
"""

import json
import time
from dataclasses import dataclass
from typing import Any

from warmstack_engine.settings import Settings
from warmstack_shared.checkpoint import files_stamp, read_digest
from warmstack_shared.errors import Failure
from warmstack_shared.local_http import NoAnswerError, get_unix

ASK_SECONDS = 2.0
POLL_SECONDS = 0.2


@dataclass(frozen=True, kw_only=True)
class Held:
    bytes_held: int
    highest_pid: int
    rank_pids: tuple[int, ...]
    waited_seconds: float


@dataclass(frozen=True, kw_only=True)
class Miss:
    reason: str  # unavailable, mismatch, released, wrong_gpu, pid_collision
    sentence: str


@dataclass(frozen=True, kw_only=True)
class NotYet:
    why: str


def wait_for_cache(settings: Settings) -> Held | Miss:
    """Ask until the weights are held, or this engine can't use them, or WARMSTACK_WAIT_SECONDS are over."""
    started = time.monotonic()
    while True:
        found = _ask(settings)
        waited = time.monotonic() - started
        if isinstance(found, Miss):
            return found
        if not isinstance(found, NotYet):
            return check_files(settings, found) or _held(found, waited)
        if waited >= settings.wait_seconds:
            return Miss(
                reason="unavailable",
                sentence=f"no weights were held within {settings.wait_seconds:g} s: {found.why}",
            )
        time.sleep(POLL_SECONDS)


def _ask(settings: Settings) -> dict[str, Any] | NotYet | Miss:
    try:
        answer = get_unix(settings.supervisor_socket, "/status", ASK_SECONDS)
        status = json.loads(answer.body)
    except NoAnswerError as error:
        return NotYet(why=f"the supervisor does not answer ({error})")
    except ValueError:
        return NotYet(why="the supervisor's answer is not JSON")
    return judge_status(settings, status)


def judge_status(settings: Settings, status: dict[str, Any]) -> dict[str, Any] | NotYet | Miss:
    """The status itself when the weights are held for this identity.

    Identity comes first: another model's weight cache is a miss at once, not something to wait for.
    """
    if status["identity"] != settings.identity:
        return Miss(
            reason="mismatch",
            sentence=f"the weight cache holds {status['model']} (identity {status['identity'][:16]}), "
            f"this engine needs {settings.model} (identity {settings.identity[:16]})",
        )
    if status["state"] != "held":
        because = f": {status['reason']}" if status.get("reason") else ""
        return NotYet(why=f"the weight cache is {status['state']}{because}")
    return status


def check_files(settings: Settings, status: dict[str, Any]) -> Miss | None:
    """A miss when the model folder is not what the weight cache has loaded.

    The full digest is read only when size, time or inode of a file differ: a copy or a `touch` is no change.
    """
    try:
        if files_stamp(settings.model_path) == status["files"]:
            return None
        digest = read_digest(settings.model_path)
    except Failure as failure:
        return Miss(reason="mismatch", sentence=f"the model folder can't be read: {failure.sentence}")
    if digest == settings.model_digest == status["model_digest"]:
        return None
    return Miss(
        reason="mismatch",
        sentence="the model folder was changed while its weights are cached: "
        f"{settings.model_path} has digest {digest[:16]}, "
        f"the weight cache holds {status['model_digest'][:16]}",
    )


def _held(status: dict[str, Any], waited_seconds: float) -> Held:
    return Held(
        bytes_held=status["bytes_held"],
        highest_pid=status["highest_pid"],
        rank_pids=tuple(status["rank_pids"]),
        waited_seconds=round(waited_seconds, 3),
    )
