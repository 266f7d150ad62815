"""A scenario is a folder: environment.yaml, and its outcome: compose.yaml (and the unit), or expected.txt.

After a change that is meant, `python tests/golden/test_scenarios.py` writes the outcomes anew; read the diff.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from support.wishes import LOCKED, PINS
from warmplan import UserError, build_spec, plan_stack, render_compose, render_unit
from warmplan.document import read_document
from warmplan.environment import Environment
from warmplan.unit import UNIT_FILE

SCENARIOS = Path(__file__).parent / "scenarios"
NAMES = sorted(path.name for path in SCENARIOS.iterdir())


def outcome(name: str) -> dict[str, str]:
    """The files that a scenario leads to, by name."""
    try:
        document = read_document(SCENARIOS / name / "environment.yaml", shown_as=f"{name}/environment.yaml")
        spec = build_spec(environment=Environment(name=name, document=document))
        model = replace(LOCKED, name=spec.model.name, source="local" if spec.model.is_local else "hub")
        plan = plan_stack(spec=spec, pins=PINS, model=model)
    except UserError as error:
        return {"expected.txt": f"{error}\nexit code {error.exit_code}\n"}
    unit = render_unit(plan)
    return {"compose.yaml": render_compose(plan), **({} if unit is None else {UNIT_FILE: unit})}


@pytest.mark.parametrize("name", NAMES)
def test_scenario(name: str) -> None:
    there = {path.name: path.read_text(encoding="utf-8") for path in (SCENARIOS / name).iterdir()}
    del there["environment.yaml"]
    assert there == outcome(name)


if __name__ == "__main__":
    for scenario in NAMES:
        for written, content in outcome(scenario).items():
            (SCENARIOS / scenario / written).write_text(content, encoding="utf-8")
