"""A browser here too, as in its own level."""

from browser.conftest import browser, chat, signed_in

__all__ = ("browser", "chat", "signed_in")
