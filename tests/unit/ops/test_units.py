"""Figures as people read them."""

from __future__ import annotations

import pytest

from warmops.units import size


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1 KiB"),
        (-1536, "-1.5 KiB"),
        (64 * 1024**2, "64 MiB"),
        (269060552, "256.6 MiB"),
        (15 * 1024**3 + 300 * 1024**2, "15.3 GiB"),
        (2000 * 1024**3, "2,000 GiB"),
    ],
)
def test_a_size_has_the_largest_unit_of_which_there_is_one(count: int, text: str) -> None:
    assert size(count) == text
