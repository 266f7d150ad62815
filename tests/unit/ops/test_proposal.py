"""A wish before it is in force: what Compose reads of it, and putting it in force at any number of tries."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from support.compose import compose
from support.wishes import CPU, plan_of
from warmops.project import Project, Remembered
from warmops.proposal import Proposal, in_force, propose, surge_override
from warmplan import Plan, render_compose

OVERRIDE = """\
services:
  vllm:
    ports: !reset []
    environment: {A: &a "1", B: *a}
    devices: [/dev/null]
  gateway: {labels: {x: y}}
"""


def settings(**changes: object) -> Remembered:
    facts = {
        "environment": "cpu", "overrides": {}, "model": "m", "served_model": "m", "identity": "i",
        "platform": "cpu", "ranks": 1, "gateway_url": "http://127.0.0.1:1", "webui_url": None,
        "needs_api_key": False,
    }  # fmt: skip
    return Remembered(**{**facts, **changes})  # type: ignore[arg-type]


def proposed(tmp_path: Path, text: str = CPU, *, override: str | None = None, name: str = "wish") -> Proposal:
    project = Project(name="p", state=tmp_path)
    given = override.encode() if override is not None else None
    return propose(project, plan(text), settings(), override=given, folder=project.folder / name)


def plan(text: str) -> Plan:
    return plan_of(text)


def test_nothing_is_in_force_until_it_is_put_there(tmp_path: Path) -> None:
    wish = proposed(tmp_path, override=OVERRIDE)
    project = wish.project
    assert not project.compose_file.exists()
    assert wish.compose.file == wish.compose_file
    wish.put_in_force()
    wish.put_in_force()  # a run that was killed in the middle does it again
    assert project.compose_file.read_text() == render_compose(plan(CPU))
    assert project.remembered() == settings()
    assert in_force(project).override == OVERRIDE.encode()
    assert [path.name for path in project.compose.overrides] == ["override.yaml", "override.surge.yaml"]
    wish.discard()
    assert not wish.folder.exists()
    in_force(project).discard()
    assert project.compose_file.exists()


def test_a_wish_without_an_override_takes_the_one_in_force_away(tmp_path: Path) -> None:
    proposed(tmp_path, override=OVERRIDE).put_in_force()
    wish = proposed(tmp_path)
    assert wish.compose.overrides == ()
    wish.put_in_force()
    assert wish.project.compose.overrides == ()


@pytest.mark.parametrize(
    ("text", "override", "same"),
    [
        (CPU, None, True),
        (CPU + "engine: {max_num_seqs: 4}", None, False),
        (CPU, OVERRIDE, False),
    ],
)
def test_whether_two_wishes_ask_the_same(tmp_path: Path, text: str, override: str | None, same: bool) -> None:
    one = proposed(tmp_path, name="next")
    assert one.asks_the_same(proposed(tmp_path, text, override=override)) is same


def test_a_wish_moves_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "p/next").mkdir(parents=True)
    (tmp_path / "p/next/left-over").touch()
    wish = proposed(tmp_path)
    moved = wish.move(tmp_path / "p/next")
    assert moved.settings == settings()
    assert not wish.folder.exists()
    assert not (moved.folder / "left-over").exists()


def test_what_an_override_says_of_the_engine_it_says_of_the_second_one() -> None:
    derived = surge_override(OVERRIDE)
    assert derived is not None
    assert "!reset" in derived
    read = yaml.safe_load(derived.replace("!reset", ""))
    assert read == {
        "services": {
            "vllm-surge": {"ports": [], "environment": {"A": "1", "B": "1"}, "devices": ["/dev/null"]}
        }
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "services: {gateway: {}}",
        "services: {vllm: {labels: {a: b}}, vllm-surge: {}}",
        "services: []",
        "a: [",
        "- a",
    ],
)
def test_an_override_that_says_nothing_of_it_or_names_both(text: str) -> None:
    assert surge_override(text) is None


def test_the_second_engine_of_a_plan_without_one_is_not_named(tmp_path: Path) -> None:
    wish = proposed(tmp_path, CPU + "engine: {roll: false}", override=OVERRIDE)
    assert [path.name for path in wish.compose.overrides] == ["override.yaml"]


def test_compose_reads_both_files(tmp_path: Path) -> None:
    """The real Compose: what the override changes of vllm, it changes of vllm-surge."""
    wish = proposed(tmp_path, override="services: {vllm: {labels: {x: y}}}")
    files = [word for file in wish.compose.overrides for word in ("-f", str(file))]
    text = wish.compose_file.read_text()
    told = compose(tmp_path / "read", text, *files, "--profile", "surge", "config")
    services = yaml.safe_load(told)["services"]
    assert services["vllm"]["labels"]["x"] == services["vllm-surge"]["labels"]["x"] == "y"
