"""warmplan touches nothing, and no step imports one further right."""

import ast
from pathlib import Path

import pytest

import warmplan
from warmplan.reference import render_reference

PACKAGE = Path(warmplan.__file__).parent
FORBIDDEN = {
    "os",
    "subprocess",
    "socket",
    "time",
    "datetime",
    "random",
    "requests",
    "urllib.request",
    "warmops",
    "platform",
}
FLOW = ("document", "environment", "spec", "identity", "budget", "plan", "render")


def imports(module: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def closure(name: str) -> set[str]:
    """Every module of the package that importing this one imports."""
    seen: set[str] = set()
    todo = [name]
    while todo:
        module = todo.pop()
        inside = {
            found.removeprefix("warmplan.")
            for found in imports(PACKAGE / f"{module}.py")
            if "warmplan." in found
        }
        todo += sorted(inside - seen)
        seen |= inside
    return seen


@pytest.mark.parametrize("module", sorted(PACKAGE.glob("*.py")), ids=lambda path: path.name)
def test_no_module_reaches_outside(module: Path) -> None:
    assert not imports(module) & FORBIDDEN


@pytest.mark.parametrize("name", FLOW)
def test_no_step_imports_one_further_right(name: str) -> None:
    further_right = set(FLOW[FLOW.index(name) + 1 :])
    assert not closure(name) & further_right


def test_the_reference_is_up_to_date() -> None:
    committed = (PACKAGE.parents[1] / "docs/environment.md").read_text(encoding="utf-8")
    assert committed == render_reference()
