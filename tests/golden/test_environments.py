"""The committed environments are what rendering gives, from any folder and in any shell (case 4)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.wishes import REPOSITORY

ENVIRONMENTS = REPOSITORY / "compose/environments"
NAMES = sorted(path.parent.name for path in ENVIRONMENTS.glob("*/environment.yaml"))
RENDER = """
import sys
from pathlib import Path
from warmplan import *

root, name, out = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
folder = root / "environments" / name
spec = build_spec(environment=read_environment(folder))
model = read_lock(folder / "lock.yaml").find(name=spec.model.name, revision=spec.model.revision)
plan = plan_stack(spec=spec, pins=read_pins(root / "pins.yaml"), model=model)
(out / "compose.yaml").write_text(render_compose(plan), encoding="utf-8")
(out / "plan.md").write_text(render_plan(plan), encoding="utf-8")
"""


def rendered(root: str, name: str, out: Path, *, folder: Path, shell: dict[str, str]) -> list[str]:
    """Both files, made by a process of its own in that folder and shell."""
    out.mkdir()
    subprocess.run(
        [sys.executable, "-c", RENDER, root, name, str(out)],
        cwd=folder,
        env={"PATH": os.defpath, "PYTHONPATH": str(REPOSITORY / "compose"), **shell},
        timeout=60,
        check=True,
    )
    return [(out / file).read_text(encoding="utf-8") for file in ("compose.yaml", "plan.md")]


@pytest.mark.parametrize("name", NAMES)
def test_rendered_again_gives_the_same_bytes(name: str, tmp_path: Path) -> None:
    committed = [
        (ENVIRONMENTS / name / file).read_text(encoding="utf-8") for file in ("compose.yaml", "plan.md")
    ]
    shell = {"MODEL": "other/model", "PORT": "9999", "GPUS": "4", "LC_ALL": "C", "PYTHONHASHSEED": "1"}
    inside = rendered("compose", name, tmp_path / "a", folder=REPOSITORY, shell={"PYTHONHASHSEED": "0"})
    outside = rendered(str(REPOSITORY / "compose"), name, tmp_path / "b", folder=tmp_path, shell=shell)
    assert inside == outside
    assert inside == committed


def test_all_three_are_there() -> None:
    assert {"cpu", "gpu", "gpu-tp2"} <= set(NAMES)
