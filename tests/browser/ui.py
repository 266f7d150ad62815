"""Drives Open WebUI 0.12 as a person does: sign in, pick a model, write, read.

In: the address of the user interface and the admin's account. Out: what stands on the page.
It knows the page's elements and no engine. Every wait is for something on the page, with a time-out.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, Error, Locator, Page, Request, StorageState, expect, sync_playwright

ARTEFACTS = Path(__file__).parents[2] / ".artefacts"
# No update, no field trial, no sign-in service: Chromium itself asks for nothing.
CHROMIUM_FLAGS = (
    "--no-sandbox",  # the tests run as root in CI
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-sync",
    "--metrics-recording-only",
    "--no-first-run",
    "--no-proxy-server",
)
NETWORK_CHANGED = "net::ERR_NETWORK_CHANGED"


def chromium_binary() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert found, "Chromium is missing: apt-get install chromium fonts-dejavu-core"
    return found


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """The distribution's Chromium, without a window."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_binary(), args=list(CHROMIUM_FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@dataclass(kw_only=True)
class Chat:
    """One browser window.

    `requests` are the addresses that the page asked for, `cut_requests` those that Chromium cut because an
    interface of this host came or went, as each start and stop of a container makes it.
    """

    page: Page
    url: str
    requests: list[str] = field(default_factory=list)
    cut_requests: list[str] = field(default_factory=list)

    @classmethod
    def open(cls, browser: Browser, url: str, *, signed_in: StorageState | None = None) -> Chat:
        """A new window; `signed_in` is what `Chat.memory` of another one returned."""
        context = browser.new_context(
            viewport={"width": 1280, "height": 800}, locale="en-US", storage_state=signed_in
        )
        page = context.new_page()
        page.set_default_timeout(30_000)
        chat = cls(page=page, url=url)
        page.on("request", chat._note)
        page.on("requestfailed", chat._note_failure)
        return chat

    @property
    def memory(self) -> StorageState:
        """Cookies and local storage: what keeps a person signed in."""
        return self.page.context.storage_state()

    def _note(self, request: Request) -> None:
        self.requests.append(request.url)

    def _note_failure(self, request: Request) -> None:
        if request.failure == NETWORK_CHANGED:
            self.cut_requests.append(request.url)

    @property
    def input(self) -> Locator:
        return self.page.locator("#chat-input")

    @property
    def model_selector(self) -> Locator:
        return self.page.locator("button[id^='model-selector-']:visible").first

    def load(self, url: str) -> None:
        """Open a page of the user interface; again when Chromium cut its requests (see `cut_requests`)."""
        shown = self.input.or_(self.whats_new).or_(self.page.locator("input[type=email]"))
        broken = self.page.get_by_text("500: Internal Error")
        for _ in range(5):
            self.cut_requests.clear()
            try:
                self.page.goto(url)
            except Error as error:
                if NETWORK_CHANGED not in error.message:
                    raise
                continue
            expect(shown.or_(broken).first).to_be_visible(timeout=60_000)
            if not (broken.is_visible() and self.cut_requests):
                break
        expect(shown.first).to_be_visible()

    def sign_in(self, email: str, password: str) -> None:
        self.load(f"{self.url}/auth")
        self.page.fill("input[type=email]", email)
        self.page.fill("input[type=password]", password)
        self.page.click("button[type=submit]")
        self.wait_for_the_input()

    def open_home(self) -> None:
        """The start page, signed in already."""
        self.open_chat(self.url)

    def open_chat(self, url: str) -> None:
        """The page of an earlier chat, signed in already."""
        self.load(url)
        self.wait_for_the_input()

    @property
    def whats_new(self) -> Locator:
        return self.page.get_by_role("button", name=re.compile("Okay, Let's Go"))

    def wait_for_the_input(self) -> None:
        """An admin's first visit is covered by "What's New", which takes all clicks until it is closed."""
        expect(self.input.or_(self.whats_new).first).to_be_visible(timeout=60_000)
        with contextlib.suppress(AssertionError):
            expect(self.whats_new).to_be_visible(timeout=2_000)
            self.whats_new.click()
            expect(self.whats_new).to_be_hidden()
        expect(self.input).to_be_visible()

    def pick_model(self, model: str) -> None:
        self.model_selector.click()
        self.page.locator(f"[role=option][aria-label='Select {model} model']").click()
        expect(self.model_selector).to_have_attribute("aria-label", f"Selected model: {model}")

    def send(self, text: str) -> None:
        self.input.click()
        self.page.keyboard.type(text)
        self.page.keyboard.press("Enter")

    @property
    def messages(self) -> Locator:
        """Those on the page: old ones leave it in a long chat."""
        return self.page.locator("[role=log] > [role=listitem]")

    @property
    def last_message(self) -> Locator:
        return self.messages.last

    @property
    def stop_button(self) -> Locator:
        """There for as long as an answer is awaited or grows."""
        return self.page.get_by_role("button", name="Stop", exact=True)

    def expect_sent(self, text: str) -> None:
        """The message stands there, and the place of its answer below it."""
        expect(self.messages.nth(-2)).to_contain_text(text)

    def expect_end(self, *, seconds: float = 60) -> str:
        """Wait until the answer has ended, well or badly. Its text."""
        expect(self.stop_button).to_be_hidden(timeout=seconds * 1000)
        return self.last_message.inner_text()

    def ask(self, text: str, *, seconds: float = 60) -> str:
        """Send a message and read the whole answer."""
        self.send(text)
        self.expect_sent(text)
        expect(self.last_message).to_contain_text(re.compile(r"\w+\W+\w+"), timeout=seconds * 1000)
        return self.expect_end(seconds=seconds)

    def watch_growth(self, *, steps: int, seconds: float = 60) -> list[int]:
        """The lengths that the answer has while it grows, until it has had `steps` or ends."""
        lengths = [len(self.last_message.inner_text())]
        deadline = time.monotonic() + seconds
        while len(lengths) < steps and (self.stop_button.is_visible() or len(lengths) == 1):
            length = len(self.last_message.inner_text())
            if length != lengths[-1]:
                lengths.append(length)
            assert time.monotonic() < deadline, f"the answer does not grow; lengths so far: {lengths}"
        return lengths

    def screenshot(self, name: str) -> Path:
        ARTEFACTS.mkdir(exist_ok=True)
        path = ARTEFACTS / f"{name}.png"
        self.page.screenshot(path=path)
        return path
