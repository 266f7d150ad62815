"""Asking one engine itself, past the gateway, and whether two engines answer the same.

In: an engine's container and the name it serves. Out: its greedy answer to the reference question. It refuses
to know which engine serves users.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from warmops.answers import AnswerError, completion_request, completion_text
from warmops.changes import Container
from warmops.docker import DockerError
from warmops.project import Project

_ANSWER_SECONDS = 200.0
# A busy engine computes in other batches than an idle one, and near-ties of greedy answers fall otherwise.
_ROUNDS = 3


@dataclass(frozen=True, kw_only=True)
class Told:
    """The last `answer`, what was `expected`, and every answer that counts as right."""

    same: bool
    answer: str
    expected: str
    known: tuple[str, ...]


def ask_engine(project: Project, container: Container, model: str) -> str:
    """The greedy answer of the engine in this container. Raises AnswerError."""
    path, body = completion_request(model)
    try:
        told = project.docker.execute(
            container.id,
            "warmstack-probe",
            "ask",
            path,
            check=False,
            timeout_seconds=_ANSWER_SECONDS,
            stdin=body,
        )
    except DockerError as error:
        raise AnswerError(str(error)) from error
    return completion_text(told.stdout)


def same_answer(
    known: tuple[str, ...],
    *,
    ask: Callable[[], str],
    again: Callable[[], str],
    rounds: int = _ROUNDS,
) -> Told:
    """Compare an engine's answer with those that are known to be right.

    When it differs both sides are asked again: `again` asks the engine that is known to be right.
    """
    answer = ask()
    for _ in range(rounds - 1):
        if answer in known:
            break
        known = tuple(dict.fromkeys((*known, again())))
        if answer not in known:
            answer = ask()
    return Told(same=answer in known, answer=answer, expected=known[0] if known else "", known=known)
