"""A person in a browser while an engine is replaced, and an answer that is long enough for that."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from browser.ui import Chat
from support.rolls import STEPS, roll, until
from support.stack import QUESTION, Stack

STORY = "Write a long story about a lighthouse keeper who finds a message in a bottle."


# Long enough for the start of a second engine, and short of what an engine is given to finish.
NOT_TOO_LONG = """
services: {open-webui: {environment: {DEFAULT_MODEL_PARAMS: '{"temperature": 0.0, "max_tokens": 700}'}}}
"""


@pytest.fixture(scope="module", autouse=True)
def bounded_answers(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    file: Path = tmp_path_factory.mktemp("override") / "override.yaml"
    file.write_text(NOT_TOO_LONG)
    stack.up("--override", str(file))
    yield
    stack.up()


def test_a_stream_that_runs_through_a_roll_comes_whole(chat: Chat, stack: Stack) -> None:
    """Begun before it; the next message is answered in its middle, and one after it, in a page that stays."""
    assert "Paris" in chat.ask(QUESTION)
    chat.page.evaluate("window.sameDocument = true")
    with roll(stack) as process:
        until(stack, process, STEPS[0])
        chat.send(STORY)
        chat.expect_sent(STORY)
        expect(chat.last_message).to_contain_text(re.compile(r"(\w+\W+){20}"), timeout=60_000)
        story = chat.expect_end(seconds=600)
        assert "Paris" in chat.ask(QUESTION, seconds=180)
        told, said = process.communicate(timeout=600)
    report = json.loads(told)
    assert (report["outcome"], report["cut_streams"]) == ("rolled", 0), said
    drained = next(step for step in report["steps"] if step["name"] == "drain vllm")
    assert drained["detail"] == "1 requests were running", "the story ended before requests moved"
    assert "engine stopped" not in story
    assert len(story.split()) > 100
    # After so long a story the small model may name another city: what counts is that it answers.
    assert "capital of France" in chat.ask(QUESTION, seconds=180)
    assert chat.page.evaluate("window.sameDocument") is True
