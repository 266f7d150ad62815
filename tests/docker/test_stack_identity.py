"""Two checkpoints of one layout: an engine of the second never answers with the weights of the first
(case 10).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.checkpoints import write_other_checkpoint
from support.stack import ROOT, Stack
from support.waiting import wait_until

MARK = re.compile(r'warmstack: (\{"event": "miss".*\})')


@pytest.fixture
def other_checkpoint(stack: Stack, tmp_path: Path) -> Path:
    """The stack's checkpoint as a local folder, one tensor negated: same names and shapes, other content."""
    write_other_checkpoint(stack, tmp_path)
    return tmp_path


@pytest.fixture
def engine_of_the_other(stack: Stack, other_checkpoint: Path) -> Iterator[Stack]:
    """The running weight cache of the first, and an engine planned for the second."""
    from warmops.checkpoint import local_manifest
    from warmplan import (
        build_spec,
        model_from_manifest,
        plan_stack,
        read_environment,
        read_pins,
        render_compose,
    )
    from warmplan.spec import Override

    manifest = local_manifest(other_checkpoint, memory=other_checkpoint.parent / "digests.json")
    wish = [Override(key="model.name", value=str(other_checkpoint), origin="test")]
    environment = read_environment(ROOT / "compose" / "environments" / "cpu")
    spec = build_spec(environment=environment, overrides=[*wish, _project(stack)])
    pins = read_pins(ROOT / "compose" / "pins.yaml")
    plan = plan_stack(spec=spec, pins=pins, model=model_from_manifest(manifest))
    text, file = stack.compose_file.read_text(), stack.compose_file
    try:
        file.write_text(render_compose(plan))
        stack.compose("up", "--detach", "--no-deps", "--force-recreate", "vllm")
        yield stack
    finally:
        file.write_text(text)
        stack.up()


def _project(stack: Stack) -> object:
    from warmplan.spec import Override

    return Override(key="project", value=stack.project, origin="test")


def test_the_engine_of_the_second_is_refused_and_both_are_named(engine_of_the_other: Stack) -> None:
    stack = engine_of_the_other
    held = stack.weight_cache_status()["identity"]
    wanted = stack.service_environment("vllm")["WARMSTACK_IDENTITY"]
    assert held != wanted

    def miss() -> dict[str, str]:
        found = MARK.search(stack.compose("logs", "--no-color", "--no-log-prefix", "vllm"))
        return dict(json.loads(found[1])) if found else {}

    seen = wait_until(miss, seconds=60, what="the engine's miss mark")
    assert (seen["reason"], seen["outcome"]) == ("mismatch", "refused")
    assert held[:8] in seen["sentence"]
    assert wanted[:8] in seen["sentence"]
    facts = json.loads(stack.warm("status", "--json", check=False).stdout)
    assert facts["serving"] is False
    assert facts["identity"]["equal"] is False
