"""The committed environments are what rendering gives, from any folder and in any shell (case 4)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.wishes import REPOSITORY

ENVIRONMENTS = REPOSITORY / "compose/environments"
NAMES = sorted(path.parent.name for path in ENVIRONMENTS.glob("*/environment.yaml"))
FILES = ("compose.yaml", "plan.md")
RENDER = """
import sys
from pathlib import Path
from warmplan import *

root, out = Path(sys.argv[1]), Path(sys.argv[2])
for folder in map((root / "environments").joinpath, sys.argv[3:]):
    spec = build_spec(environment=read_environment(folder))
    model = read_lock(folder / "lock.yaml").find(name=spec.model.name, revision=spec.model.revision)
    plan = plan_stack(spec=spec, pins=read_pins(root / "pins.yaml"), model=model)
    (out / folder.name).mkdir()
    (out / folder.name / "compose.yaml").write_text(render_compose(plan), encoding="utf-8")
    (out / folder.name / "plan.md").write_text(render_plan(plan), encoding="utf-8")
"""


def rendered(root: str, out: Path, *, folder: Path, shell: dict[str, str]) -> Path:
    """The files of every environment, made by a process of its own in that folder and shell."""
    out.mkdir()
    subprocess.run(
        [sys.executable, "-c", RENDER, root, str(out), *NAMES],
        cwd=folder,
        env={"PATH": os.defpath, "PYTHONPATH": str(REPOSITORY / "compose"), **shell},
        timeout=60,
        check=True,
    )
    return out


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Rendered from inside the repository, and from elsewhere under a shell that exports this and that."""
    top = tmp_path_factory.mktemp("rendered")
    shell = {"MODEL": "other/model", "PORT": "9999", "GPUS": "4", "LC_ALL": "C", "PYTHONHASHSEED": "1"}
    inside = rendered("compose", top / "a", folder=REPOSITORY, shell={"PYTHONHASHSEED": "0"})
    return inside, rendered(str(REPOSITORY / "compose"), top / "b", folder=top, shell=shell)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("name", NAMES)
def test_rendered_again_gives_the_same_bytes(name: str, file: str, outputs: tuple[Path, Path]) -> None:
    committed = (ENVIRONMENTS / name / file).read_text(encoding="utf-8")
    for output in outputs:
        assert (output / name / file).read_text(encoding="utf-8") == committed


def test_all_three_are_there() -> None:
    assert {"cpu", "gpu", "gpu-tp2"} <= set(NAMES)
