"""The first question to a standby: asked once, and what it answers is no matter."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from fakes.engine import FakeEngine
from support.waiting import wait_until
from warmstack_engine.warming import warm_up
from warmstack_engine.watching import Ready, watch
from warmstack_shared.inbox import Inbox

NO_TEMPLATE = (400, "BadRequestError", "there is no chat template")


def test_a_chat_is_asked_by_the_name_that_the_engine_serves() -> None:
    with FakeEngine() as engine:
        seconds = warm_up(engine.port)
        assert seconds is not None
        assert seconds > 0
        (asked,) = engine.chats()
    assert (asked.json["model"], asked.json["max_tokens"], asked.json["temperature"]) == ("fake/model", 2, 0)


def test_a_model_without_a_chat_template_is_asked_for_a_completion() -> None:
    with FakeEngine() as engine:
        engine.behave(refuse=NO_TEMPLATE)
        assert warm_up(engine.port) is None  # the fake has no plain completions
    assert [request.path for request in engine.received if request.method == "POST"] == [
        "/v1/chat/completions",
        "/v1/completions",
    ]


@pytest.mark.parametrize("changes", [{"refuse": NO_TEMPLATE}, {"die_after_tokens": 0}])
def test_one_that_gives_no_answer_is_none_the_worse(changes: dict[str, Any]) -> None:
    with FakeEngine() as engine:
        engine.behave(**changes)
        assert warm_up(engine.port) is None
    assert warm_up(engine.port) is None


@pytest.mark.parametrize("standby", [True, False])
def test_only_a_standby_is_asked_and_after_it_is_ready(standby: bool) -> None:
    inbox, stop = Inbox(), threading.Event()
    with FakeEngine() as engine:
        watching = threading.Thread(
            target=watch,
            args=(7, engine.port, inbox, stop),
            kwargs={"hang_seconds": 0.0, "standby": standby},
        )
        watching.start()
        assert inbox.get(10) == Ready(pid=7)
        watching.join(10)
        wait_until(lambda: len(engine.chats()) == int(standby), seconds=5, what="as often asked as wanted")
