"""A first question to an engine that may have to wait long for one: a standby.

In: its port. Out: how long the answer took. What an engine does once, at its first answer (the chat template,
code that is chosen by shape, pages of the weights), is then done before the engine is needed. Refuses to
know: what the answer says. One that gives none serves as well as before.
"""

import json
import time
from typing import Any

from warmstack_shared.local_http import NoAnswerError, get_tcp, post_tcp

ASK_SECONDS = 120.0
_QUESTION = "What is the capital of France?"


def warm_up(port: int) -> float | None:
    """Seconds until the engine had answered; None when it did not."""
    started = time.monotonic()
    try:
        model = json.loads(get_tcp(port, "/v1/models", ASK_SECONDS).body)["data"][0]["id"]
        chat = {"messages": [{"role": "user", "content": _QUESTION}]}
        # A model without a chat template answers plain completions alone.
        answered = _ask(port, "/v1/chat/completions", model, chat) or _ask(
            port, "/v1/completions", model, {"prompt": _QUESTION}
        )
    except (NoAnswerError, ValueError, LookupError, TypeError):
        return None
    return time.monotonic() - started if answered else None


def _ask(port: int, path: str, model: str, question: dict[str, Any]) -> bool:
    body = {"model": model, "max_tokens": 2, "temperature": 0, **question}
    return post_tcp(port, path, json.dumps(body).encode(), ASK_SECONDS).status == 200
