"""Facts the loop hears of through its inbox, and the threads that gather them.

In: settings and a child. Out: `Verified`, `Found`, `RoomFound`. Refuses to know: states; it decides nothing.
"""

import threading
from dataclasses import dataclass

from warmstack_shared.checkpoint import files_stamp, read_digest
from warmstack_shared.errors import Failure
from warmstack_shared.inbox import Inbox
from warmstack_shared.local_http import NoAnswerError as NoHttpError
from warmstack_shared.local_http import get_tcp
from warmstack_supervisor.holding import Holding, NoAnswerError, ask_ranks
from warmstack_supervisor.memory import Room
from warmstack_supervisor.settings import Settings

POLL_LOADING_SECONDS = 0.2
POLL_HELD_SECONDS = 5.0
ASK_SECONDS = 3.0


@dataclass(frozen=True, kw_only=True)
class Verified:
    """The files of the model folder, read in full while the child `pid` loads. `problem`: they are the wrong
    ones.
    """

    pid: int
    files: str | None
    problem: str | None


@dataclass(frozen=True, kw_only=True)
class Found:
    """What the child `pid` says. `ready`: all ranks are up, by vLLM's health port; None is no answer, for
    both.
    """

    pid: int
    ready: bool | None
    holding: Holding | None


@dataclass(frozen=True, kw_only=True)
class RoomFound:
    room: Room


def verify(settings: Settings, pid: int) -> Verified:
    """Digest of the model folder against the plan's. The stamp is taken before reading: a later change
    differs.
    """
    try:
        files = files_stamp(settings.model_path)
        digest = read_digest(settings.model_path)
    except Failure as failure:
        return Verified(pid=pid, files=None, problem=f"the model folder can't be read: {failure.sentence}")
    problem = None
    if digest != settings.model_digest:
        problem = (
            f"the model folder {settings.model_path} has digest {digest[:16]}, but the plan was made for "
            f"{settings.model_digest[:16]}: it was changed since; make up plans anew"
        )
    return Verified(pid=pid, files=files, problem=problem)


def watch(settings: Settings, pid: int, inbox: Inbox, stop: threading.Event) -> None:
    """Runs in a thread for one child until `stop`."""
    while True:
        found = _find(settings, pid)
        inbox.put(found)
        if stop.wait(POLL_HELD_SECONDS if found.holding else POLL_LOADING_SECONDS):
            return


def _find(settings: Settings, pid: int) -> Found:
    ready = _vllm_ready(settings.health_port)
    # Before vLLM says that all ranks serve, nobody is asked: a rank that loads would not answer.
    return Found(pid=pid, ready=ready, holding=_holding_or_none(settings) if ready else None)


def _vllm_ready(port: int) -> bool | None:
    try:
        return get_tcp(port, "/health", ASK_SECONDS).status == 200
    except NoHttpError:
        return None


def _holding_or_none(settings: Settings) -> Holding | None:
    try:
        return ask_ranks(settings.socket_folder, settings.ranks)
    except NoAnswerError:
        return None
