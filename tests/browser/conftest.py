"""One Chromium for the level, one sign-in, and a window for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, StorageState

from browser.ui import Chat, chromium
from support.stack import Stack


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="session")
def signed_in(browser: Browser, stack: Stack) -> StorageState:
    """The memory of a window in which the admin has signed in."""
    first = Chat.open(browser, stack.webui_url)
    first.sign_in(stack.admin_email, stack.admin_password)
    memory = first.memory
    first.page.context.close()
    return memory


@pytest.fixture
def chat(
    browser: Browser, stack: Stack, signed_in: StorageState, request: pytest.FixtureRequest
) -> Iterator[Chat]:
    """A new window, signed in, with a picture of its end. No page may ask for anything outside."""
    window = Chat.open(browser, stack.webui_url, signed_in=signed_in)
    window.open_home()
    yield window
    window.screenshot(request.node.name.removeprefix("test_"))
    outside = {url for url in window.requests if not url.startswith((stack.webui_url, "data:", "blob:"))}
    window.page.context.close()
    assert outside == set()
