"""Names that Compose accepts, made from names that people choose.

In: any text. Out: a project name. It does not know models or environments.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

# Compose: lower case letters, digits, `-` and `_`, first a letter or digit. Docker puts it in front of the
# names of containers, volumes and networks; DNS labels end at 63 characters, so it stays well below.
MAX_LENGTH: Final = 40
_VALID: Final = re.compile(r"[a-z0-9][a-z0-9_-]*")
_HASH_LENGTH: Final = 8


def project_name(text: str) -> str:
    """A valid Compose project name: the text itself where it is one, else a readable slug plus a hash.

    Stable, and different for texts that differ: the hash stands in wherever something had to be changed.
    """
    if len(text) <= MAX_LENGTH and _VALID.fullmatch(text) and not _ends_like_hash(text):
        return text
    slug = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    digest = hashlib.sha256(text.encode()).hexdigest()[:_HASH_LENGTH]
    head = slug[: MAX_LENGTH - _HASH_LENGTH - 1].rstrip("-")
    return f"{head}-{digest}" if head else f"p-{digest}"


def _ends_like_hash(text: str) -> bool:
    """Whether a valid text could be the result for another text; such a one gets a hash of its own."""
    return re.fullmatch(rf".*-[0-9a-f]{{{_HASH_LENGTH}}}", text) is not None
