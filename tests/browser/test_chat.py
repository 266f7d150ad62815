"""A person in a browser, on the real Open WebUI, gateway and engine (cases 34 to 39)."""

from __future__ import annotations

import json
import re
from typing import Any

import requests
from playwright.sync_api import Browser, StorageState, expect

from browser.ui import Chat
from support.stack import QUESTION, Stack

STORY = "Write a long story about a lighthouse keeper who finds a message in a bottle."
# What a message without tools stays below: the tools that Open WebUI brings are 25 kB.
LARGEST_PLAIN_REQUEST = 8_000


def engine_calls(stack: Stack) -> list[dict[str, Any]]:
    """The gateway's record of each chat request."""
    lines = stack.compose("logs", "--no-color", "--no-log-prefix", "gateway").splitlines()
    records = [json.loads(line) for line in lines if line.startswith("{") and '"http.log.access"' in line]
    return [record for record in records if record["request"]["uri"] == "/v1/chat/completions"]


def test_sign_in_pick_the_model_and_read_a_streamed_answer(browser: Browser, stack: Stack) -> None:
    chat = Chat.open(browser, stack.webui_url)
    chat.sign_in(stack.admin_email, stack.admin_password)
    chat.pick_model(stack.model)
    assert "Paris" in chat.ask(QUESTION)
    chat.screenshot("chat")
    chat.send(STORY)
    chat.expect_sent(STORY)
    lengths = chat.watch_growth(steps=8)
    assert len(lengths) == 8, f"the answer came at once instead of word by word: {lengths}"
    chat.stop_button.click()
    chat.expect_end()
    chat.page.context.close()


def test_a_message_is_one_engine_call_without_tools(chat: Chat, stack: Stack) -> None:
    before = len(engine_calls(stack))
    chat.ask(QUESTION)
    chat.ask("And of Italy?", seconds=180)
    calls = engine_calls(stack)[before:]
    assert [call["status"] for call in calls] == [200, 200]
    assert max(call["bytes_read"] for call in calls) < LARGEST_PLAIN_REQUEST


def test_after_a_recycle_the_next_message_works_without_reload(chat: Chat, stack: Stack) -> None:
    assert "Paris" in chat.ask(QUESTION)
    stack.restart_engine()
    assert "Paris" in chat.ask(QUESTION)


def test_a_message_sent_while_no_engine_lives_is_held_and_answered(
    browser: Browser, stack: Stack, signed_in: StorageState, chat: Chat
) -> None:
    """In a page that stood open, and in one that was opened meanwhile."""
    late = Chat.open(browser, stack.webui_url, signed_in=signed_in)
    stack.compose("stop", "vllm")
    try:
        late.open_home()
        for window in (chat, late):
            window.send(QUESTION)
            window.expect_sent(QUESTION)
            expect(window.stop_button).to_be_visible()
    finally:
        stack.compose("start", "vllm")
    for window in (chat, late):
        expect(window.last_message).to_contain_text("Paris", timeout=120_000)
        window.expect_end()
    late.page.context.close()


def test_a_stream_cut_in_the_middle_is_seen_and_the_next_message_works(chat: Chat, stack: Stack) -> None:
    chat.send(STORY)
    chat.expect_sent(STORY)
    expect(chat.last_message).to_contain_text(re.compile(r"(\w+\W+){20}"), timeout=60_000)
    try:
        stack.compose("kill", "vllm")
        cut = chat.expect_end()
        assert "The engine stopped while it was answering. Please send your message again." in cut
        assert len(cut.split()) > 20, f"what had arrived is gone: {cut}"
    finally:
        stack.compose("start", "vllm")
    assert "Paris" in chat.ask(QUESTION, seconds=180)


def test_a_recreated_ui_keeps_its_users_and_chats_and_stays_closed(chat: Chat, stack: Stack) -> None:
    assert "Paris" in chat.ask(QUESTION)
    place = chat.page.url
    stack.compose("up", "--detach", "--no-deps", "--force-recreate", "--wait", "open-webui")
    chat.open_chat(place)
    expect(chat.last_message).to_contain_text("Paris")
    assert "Paris" in chat.ask(QUESTION)
    stranger = {"name": "Stranger", "email": "stranger@example.com", "password": "a-password-1"}
    answer = requests.post(f"{stack.webui_url}/api/v1/auths/signup", json=stranger, timeout=30)
    assert answer.status_code == 403, answer.text
