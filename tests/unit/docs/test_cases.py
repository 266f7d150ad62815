"""Every case from the field is named by a test, and no file breaks the rules that no single test can hold.

A case is a fault that people reported in public; `case 7` in a test says which one it is about.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from support.stack import ROOT

CASES = frozenset(range(1, 43))
# About GPUs that this level has not: their parts that run without one are named all the same.
NEEDS_A_GPU = frozenset({21, 27})
NOT_YET: frozenset[int] = frozenset()

_NAMED = re.compile(r"\b[Cc]ases? ((?:\d+(?:, | and | to )?)+)")
_SOURCES = ("compose", "scripts", "vllm-image", "daemon-image", "gateway-image", "webui-image", "base-image")


def cases_in(text: str) -> set[int]:
    """`case 7`, `cases 2, 3 and 5`, `cases 34 to 39`."""
    found: set[int] = set()
    for match in _NAMED.finditer(text):
        for part in re.split(r", | and ", match[1].strip(", ")):
            first, _, last = part.partition(" to ")
            if first.strip().isdigit():
                found |= set(range(int(first), int(last or first) + 1))
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(case 7)", {7}),
        ("Cases 2, 3 and 5.", {2, 3, 5}),
        ("(cases 34 to 36, 40)", {34, 35, 36, 40}),
        ("a case of two", set()),
    ],
)
def test_how_a_case_is_named(text: str, expected: set[int]) -> None:
    assert cases_in(text) == expected


def test_every_case_is_named_by_a_test() -> None:
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if path != Path(__file__)]
    named = set().union(*(cases_in(path.read_text(encoding="utf-8")) for path in files))
    assert named <= CASES
    assert CASES - named == NOT_YET
    assert named >= NEEDS_A_GPU


def sources() -> list[Path]:
    """Every file of ours that runs on a host or in a container."""
    found = [path for folder in _SOURCES for path in (ROOT / folder).rglob("*") if path.is_file()]
    return [ROOT / "Makefile", *(path for path in found if "__pycache__" not in path.parts)]


def lines_with(pattern: str) -> list[str]:
    seen = re.compile(pattern)
    return [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in sources()
        if path.suffix not in (".lock", ".json")
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines()
        if seen.search(line)
    ]


def test_nothing_kills_by_name_or_deletes_in_shared_memory() -> None:
    """Case 28. The owner of a segment unlinks it by the path that it made."""
    assert lines_with(r"\b(pkill|killall|pidof)\b|killpg|kill\(0|kill\(-1|kill -9 -1") == []
    assert lines_with(r"(rm|rmtree|unlink)\b.*/dev/shm") == []


def test_nothing_opens_a_socket_without_a_limit() -> None:
    """Case 28: a probe without a time-out would hold the weight cache, which serves one client at a time."""
    opening = re.compile(r"\.connect\(|create_connection\(|HTTPConnection\(|urlopen\(")
    for path in sources():
        text = path.read_text(encoding="utf-8", errors="replace")
        if path.suffix == ".py" and opening.search(text):
            assert re.search(r"settimeout\(|timeout=|timeout\(|wait_for\(", text), path


def test_nothing_that_is_tracked_leads_out_of_the_checkout() -> None:
    """A link to a folder of somebody's machine is the same to every other machine as a missing file."""
    told = subprocess.run(
        ["git", "ls-files", "--stage"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=30
    )
    assert [line for line in told.stdout.splitlines() if line.startswith("120000")] == []
