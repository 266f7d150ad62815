"""A scenario is a folder: environment.yaml, and its outcome: compose.yaml, or expected.txt with the error.

After a change that is meant, `python tests/golden/test_scenarios.py` writes the outcomes anew; read the diff.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from support.wishes import LOCKED, PINS
from warmplan import UserError, build_spec, plan_stack, render_compose
from warmplan.document import read_document
from warmplan.environment import Environment

SCENARIOS = Path(__file__).parent / "scenarios"
NAMES = sorted(path.name for path in SCENARIOS.iterdir())


def outcome(name: str) -> tuple[str, str]:
    """(file name, text) of what a scenario leads to."""
    try:
        document = read_document(SCENARIOS / name / "environment.yaml", shown_as=f"{name}/environment.yaml")
        spec = build_spec(environment=Environment(name=name, document=document))
        model = replace(LOCKED, name=spec.model.name, source="local" if spec.model.is_local else "hub")
        return "compose.yaml", render_compose(plan_stack(spec=spec, pins=PINS, model=model))
    except UserError as error:
        return "expected.txt", f"{error}\nexit code {error.exit_code}\n"


@pytest.mark.parametrize("name", NAMES)
def test_scenario(name: str) -> None:
    file, text = outcome(name)
    assert (SCENARIOS / name / file).read_text(encoding="utf-8") == text


if __name__ == "__main__":
    for scenario in NAMES:
        written, content = outcome(scenario)
        (SCENARIOS / scenario / written).write_text(content, encoding="utf-8")
