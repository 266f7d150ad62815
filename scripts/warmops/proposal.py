"""A wish before it is in force: the files that `up` keeps of a project, in a folder of their own.

In: a plan, the settings to remember, an override. Out: a `Proposal` that Compose can read, that is put in
force as a whole, or thrown away. Killed at any moment, `put_in_force` can simply be done again.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import yaml

from warmops.changes import ENGINE, SURGE
from warmops.docker import Compose
from warmops.project import OVERRIDES, Project, Remembered, read_remembered, write_remembered
from warmplan import Plan, render_compose, render_plan

_COMPOSE, _PLAN, _SETTINGS = "compose.yaml", "plan.md", "settings.json"


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """The files in `folder`, with the same names as those in force."""

    project: Project
    folder: Path

    @property
    def compose_file(self) -> Path:
        return self.folder / _COMPOSE

    @property
    def compose(self) -> Compose:
        return self.project.compose_with(self.compose_file, overrides=self.folder)

    @property
    def settings(self) -> Remembered | None:
        return read_remembered(self.folder)

    @property
    def override(self) -> bytes | None:
        """The override as it was given."""
        return _content(self.folder / OVERRIDES[0])

    def asks_the_same(self, other: Proposal) -> bool:
        """Whether Compose would read the same from both."""
        names = (_COMPOSE, *OVERRIDES)
        return all(_content(self.folder / name) == _content(other.folder / name) for name in names)

    def move(self, folder: Path) -> Proposal:
        shutil.rmtree(folder, ignore_errors=True)
        self.folder.rename(folder)
        return Proposal(project=self.project, folder=folder)

    def put_in_force(self) -> None:
        """Make these the project's files. The settings are last: by them other commands see the new wish."""
        for name in (_COMPOSE, *OVERRIDES, _PLAN):
            _copy(self.folder / name, self.project.folder / name)
        settings = self.settings
        if settings is not None:
            write_remembered(self.project.folder, settings)

    def discard(self) -> None:
        if self.folder != self.project.folder:
            shutil.rmtree(self.folder, ignore_errors=True)


def in_force(project: Project) -> Proposal:
    """What the last `up` put in force, to be compared like a proposal."""
    return Proposal(project=project, folder=project.folder)


def propose(
    project: Project, plan: Plan, settings: Remembered, *, override: bytes | None, folder: Path
) -> Proposal:
    """Write the files of a plan. `override` is the content of a Compose file to lay over the generated."""
    shutil.rmtree(folder, ignore_errors=True)
    write_remembered(folder, settings)
    (folder / _COMPOSE).write_text(render_compose(plan), encoding="utf-8")
    (folder / _PLAN).write_text(render_plan(plan), encoding="utf-8")
    given, derived = OVERRIDES
    if override is not None:
        (folder / given).write_bytes(override)
        surge = surge_override(override.decode(errors="replace")) if plan.surge is not None else None
        if surge is not None:
            (folder / derived).write_text(surge, encoding="utf-8")
    return Proposal(project=project, folder=folder)


def surge_override(text: str) -> str | None:
    """What an override says of vllm, said of vllm-surge; None where it says nothing, or names both itself."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return None  # Compose says what is wrong with it
    services = _value(root, "services")
    engine = _value(services, ENGINE)
    if engine is None or _value(services, SURGE) is not None:
        return None
    named = _mapping(SURGE, engine)
    return str(yaml.serialize(_mapping("services", named), Dumper=yaml.SafeDumper))


def _value(node: yaml.Node | None, key: str) -> yaml.Node | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for name, value in node.value if name.value == key), None)


def _mapping(key: str, value: yaml.Node) -> yaml.MappingNode:
    name = yaml.ScalarNode(tag="tag:yaml.org,2002:str", value=key)
    return yaml.MappingNode(tag="tag:yaml.org,2002:map", value=[(name, value)])


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _copy(source: Path, target: Path) -> None:
    """The same content or the same absence, never a half-written file."""
    content = _content(source)
    if content is None:
        target.unlink(missing_ok=True)
        return
    part = target.with_name(f"{target.name}.part")
    part.write_bytes(content)
    part.replace(target)
