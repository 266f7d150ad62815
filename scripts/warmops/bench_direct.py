"""The reference question, asked of an engine inside its own container.

In: a container that was just started. Out: its `Answer`, and when it said that it is ready. For engines that
no gateway knows: the client is the one that asks through the gateway (`answers`), handed over as text.
"""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass

from warmops import answers
from warmops.answers import Answer
from warmops.docker import Docker, DockerError

_BASE = "http://127.0.0.1:8000"
_MARK = "answer: "
# Runs behind the text of `answers`, in a process of its own that begins with the engine.
_ASK = """
import dataclasses, sys
base, model, deadline = sys.argv[1], sys.argv[2], time.monotonic() + float(sys.argv[3])
ready_at, error = None, "it was never ready"
while time.monotonic() < deadline:
    try:
        if ready_at is None and requests.get(base + "/health", timeout=2).status_code == 200:
            ready_at = time.time()
        if ready_at is not None:
            print("answer: " + json.dumps([ready_at, dataclasses.asdict(ask(base, model))]))
            sys.exit(0)
    except (AnswerError, requests.RequestException) as problem:
        error = str(problem)
    time.sleep(0.05)
sys.exit(error)
"""


@dataclass(frozen=True, kw_only=True)
class DirectAnswer:
    """`ready_at` in unix seconds; `error` says why there is no answer."""

    answer: Answer | None = None
    ready_at: float | None = None
    error: str | None = None


def ask_directly(docker: Docker, container: str, model: str, seconds: float) -> DirectAnswer:
    """Ask again and again until it answers, for so long; an engine that ends takes the question with it."""
    words = ("python3", "-", _BASE, model, f"{seconds:.0f}")
    script = inspect.getsource(answers) + _ASK
    try:
        told = docker.execute(container, *words, check=False, timeout_seconds=seconds + 30, stdin=script)
    except DockerError as error:
        return DirectAnswer(error=str(error))
    found = [line for line in told.stdout.splitlines() if line.startswith(_MARK)]
    if not found:
        return DirectAnswer(error=(told.stderr.strip().splitlines() or ["it ended"])[-1])
    ready_at, facts = json.loads(found[0].removeprefix(_MARK))
    return DirectAnswer(answer=Answer(**facts), ready_at=ready_at)
