"""The documentation names only commands that exist, and every command of a user stands in it."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from support.stack import ROOT
from warmops.cli import build_parser, find_command
from warmops.pins import read_pins

README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
# Targets for those who work on the project; `make` alone lists them.
NOT_IN_README = {"help", "check", "images", "bench-cli", "docker-stop"}


PAGES = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *ROOT.glob("*-image/README.md")]
SOURCES = ("compose", "scripts", "vllm-image", "daemon-image", "gateway-image", "webui-image")
# `make up`, `make up REPLACE_WEIGHTS=yes`; a word in capitals or braces stands for a value.
MAKE = re.compile(r"\bmake ([a-z]+(?:-[a-z]+)*)((?: [A-Z_]+=[^\s,;`\"'|)]+)*)")
PRINTED = re.compile(r"(?<=[`\"'])" + MAKE.pattern)


def readme_commands() -> list[str]:
    """The `make` lines of the README's code blocks, without the words behind them."""
    lines = re.findall(r"^    (make\b.*)$", README, re.MULTILINE)
    return [line.split("#")[0].strip() for line in lines]


def page_commands(page: Path) -> list[str]:
    """The `make` lines of a page, in blocks and within sentences."""
    text = page.read_text(encoding="utf-8")
    spans = [*re.findall(r"`([^`\n]+)`", text), *re.findall(r"^    (.+)$", text, re.MULTILINE)]
    return sorted({match[0].strip() for span in spans for match in MAKE.finditer(span.split("#")[0])})


def all_page_commands() -> list[str]:
    return sorted({command for page in PAGES for command in page_commands(page)})


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):.*##", MAKEFILE, re.MULTILINE))


@pytest.mark.parametrize("command", sorted({*readme_commands(), *all_page_commands()}))
def test_every_make_line_of_the_pages_is_a_command_line_of_the_program(command: str) -> None:
    done = subprocess.run(
        ["make", "--dry-run", *shlex.split(command)[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        program, *words = shlex.split(line)
        assert program == "scripts/warm"
        words = words[1:] if words[0] == "--test" else words
        build_parser(find_command(words)).parse_args(words)


def test_pages_are_searched_for_commands() -> None:
    found = all_page_commands()
    assert {"make up", "make lock ENV=my-server", "make doctor ENV=gpu", "make explain"} <= set(found)


def test_every_make_line_that_a_command_prints_has_a_target_and_variables_that_exist() -> None:
    variables = set(re.search(r"^known := (.*)$", MAKEFILE, re.MULTILINE)[1].split())  # type: ignore[index]
    wrong = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for folder in SOURCES
        for path in (ROOT / folder).rglob("*.py")
        for match in PRINTED.finditer(path.read_text(encoding="utf-8"))
        if match[1] not in targets() or set(re.findall(r" ([A-Z_]+)=", match[2])) - variables
    ]
    assert wrong == ["scripts/warmops/report_svg.py: make model"], "that one is the name of a phase"


def test_every_target_of_a_user_is_in_the_readme() -> None:
    named = {word for command in readme_commands() for word in shlex.split(command)[1:]}
    assert targets() - NOT_IN_README - named == set()


def test_the_versions_of_the_host_page_are_those_of_the_images() -> None:
    page = (ROOT / "docs/host.md").read_text(encoding="utf-8")
    cpu, cuda = read_pins().vllm_cpu_version, read_pins().vllm_cuda_version
    named = re.findall(r"weight-cache:(\S+)-cpu|weight-cache:(\S+)-cuda|vllm==(\S+)", page)
    assert named == [(cpu, "", ""), ("", "", cuda), ("", cuda, "")]


def test_every_link_leads_to_a_file() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []
