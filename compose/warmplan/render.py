"""From a plan to text: compose.yaml, plan.md and, where the host runs the weight cache, its unit.

In: a plan. Out: text, always the same for the same plan. The Compose file is read back and compared with the
plan before anyone sees it. It decides nothing and computes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from warmplan.plan import Plan
from warmplan.plan_text import plan_lines
from warmplan.quoting import Quoted, quoted
from warmplan.services import Service
from warmplan.unit_file import read_unit, unit_quoted

if TYPE_CHECKING:
    import jinja2

# The same in C where PyYAML was built with libyaml, as its wheels are: ten times as fast.
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
TEMPLATES: Final = Path(__file__).resolve().parent.parent / "templates"


def render_compose(plan: Plan) -> str:
    """The text of compose.yaml. AssertionError when it does not say what the plan says, which is a bug."""
    text = _templates(quoted).get_template("compose.yaml.j2").render(plan=plan)
    _check(text, plan)
    return text


def render_unit(plan: Plan) -> str | None:
    """The text of weight-cache.service; None where a container is the weight cache."""
    if plan.unit is None:
        return None
    text = _templates(unit_quoted).get_template("weight-cache.service.j2").render(plan=plan)
    found = read_unit(text)
    assert found["ExecStart"] == [[f":{plan.unit.command[0]}", *plan.unit.command[1:]]]
    assert found["Environment"] == [[f"{name}={value}"] for name, value in plan.unit.environment]
    return text


def render_plan(plan: Plan) -> str:
    """The text of plan.md: what will run and what it needs, for a reviewer."""
    return "\n".join(plan_lines(plan)) + "\n"


@cache
def _templates(quoting: Callable[[str], Quoted]) -> jinja2.Environment:
    """The templates, for files in which a value is written as `quoting` does."""
    import jinja2  # here, since importing it takes longer than most commands that plan and render nothing

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        finalize=_only_quoted,
    )
    environment.filters.clear()
    environment.filters["quoted"] = quoting
    return environment


def _only_quoted(value: object) -> object:
    """Called by Jinja for every value that is put out; a forgotten `quoted` stops here."""
    if not isinstance(value, Quoted):
        raise TypeError(f"a template puts out {value!r} without the filter `quoted`")
    return value


def _check(text: str, plan: Plan) -> None:
    """Read the file as Compose will and compare it with the plan, field by field."""
    assert "${" not in text, "the file holds a variable"
    content: Any = yaml.load(text, Loader=_LOADER)
    assert content["name"] == plan.project
    assert list(content["services"]) == [service.name for service in plan.services]
    for service in plan.services:
        _check_service(content["services"][service.name], service)
    assert set(content["volumes"]) == {volume.name for volume in plan.volumes}
    assert set(content.get("secrets", {})) == set(plan.secrets)


def _check_service(block: Any, service: Service) -> None:
    expected = {
        "command": list(service.command),
        "environment": dict(service.environment),
        "labels": dict(service.labels),
        "ports": [port.text for port in service.ports],
        "secrets": list(service.secrets),
    }
    for key, value in expected.items():
        found = _undoubled(block.get(key, type(value)()))
        assert found == value, f"{service.name}.{key}: {found!r} is not {value!r}"
    assert tuple(block.get("profiles", ())) == service.profiles
    mounts = [(mount["source"], mount["target"]) for mount in _undoubled(block.get("volumes", []))]
    assert mounts == [(mount.source, mount.target) for mount in service.mounts]
    assert block["user"] == "10001:10001"
    assert block["read_only"] is True
    assert block["image"] == service.image


def _undoubled(value: Any) -> Any:
    """What Compose makes of `$$`."""
    if isinstance(value, str):
        return value.replace("$$", "$")
    if isinstance(value, list):
        return [_undoubled(item) for item in value]
    if isinstance(value, dict):
        return {_undoubled(key): _undoubled(item) for key, item in value.items()}
    return value
