"""Every key of environment.yaml: form, default, meaning, and whether a change moves the weight cache.

Data only; `spec` reads values by it, `render_reference` writes docs/environment.md from it, and a test
renders two plans for every line to see that `moves` is true.
"""

from __future__ import annotations

from typing import Final

from warmplan.keys import Key, Kind, Moves
from warmplan.settings_engine import ENGINE_KEYS
from warmplan.settings_front import FRONT_KEYS
from warmplan.settings_model import MODEL_KEYS

__all__ = ["KEYS", "Key", "Kind", "Moves", "find_key"]

KEYS: Final = (*MODEL_KEYS, *ENGINE_KEYS, *FRONT_KEYS)


def find_key(name: str) -> Key | None:
    """The key of that name."""
    return next((key for key in KEYS if key.name == name), None)
