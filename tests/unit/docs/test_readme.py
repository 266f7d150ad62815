"""The documentation names only commands that exist, and every command of a user stands in it."""

from __future__ import annotations

import re
import shlex
import subprocess

import pytest

from support.stack import ROOT
from warmops.pins import read_pins

README = (ROOT / "README.md").read_text(encoding="utf-8")
# Targets for those who work on the project; `make` alone lists them.
NOT_IN_README = {"help", "check", "images", "bench-cli", "docker-stop"}


def readme_commands() -> list[str]:
    """The `make` lines of the README's code blocks, without the words behind them."""
    lines = re.findall(r"^    (make\b.*)$", README, re.MULTILINE)
    return [line.split("#")[0].strip() for line in lines]


def targets() -> set[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z-]+):.*##", text, re.MULTILINE))


@pytest.mark.parametrize("command", readme_commands())
def test_every_make_line_is_accepted(command: str) -> None:
    done = subprocess.run(
        ["make", "--dry-run", *shlex.split(command)[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "scripts/warm" in done.stdout


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
