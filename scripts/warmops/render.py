"""`warm render`: writes `compose.yaml`, `plan.md` and perhaps `weight-cache.service` of the environments.

In: `environment.yaml` and `lock.yaml` of each, and the pins. Out: the files, or with `--check` nothing
but the difference on stdout and exit code 1. No setting of the make line or the shell acts here: these
files are what is reviewed.
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from warmops.pins import REPOSITORY

ENVIRONMENTS = REPOSITORY / "compose" / "environments"


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """One generated file: what it should hold and what it holds; None is no file."""

    path: Path
    wanted: str | None
    found: str | None

    @property
    def differs(self) -> bool:
        return self.wanted != self.found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--env", help="only this environment (all of compose/environments)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file differs")


def run(arguments: argparse.Namespace) -> int:
    files = [one for folder in _folders(arguments.env) for one in render_environment(folder)]
    changed = [one for one in files if one.differs]
    if not arguments.check:
        write_changed(changed)
    if arguments.json:
        print(json.dumps({"files": len(files), "changed": [_shown(one.path) for one in changed]}))
    else:
        for one in changed:
            sys.stdout.writelines(_difference(one) if arguments.check else [f"wrote {_shown(one.path)}\n"])
        print(f"{len(files)} generated files, {len(changed)} {'differ' if arguments.check else 'written'}")
    return 1 if arguments.check and changed else 0


def render_environment(folder: Path) -> tuple[Rendered, ...]:
    """The generated files of one environment. Raises UserError (exit 2) for a wrong environment or lock."""
    from warmplan import (
        build_spec,
        plan_stack,
        read_environment,
        read_lock,
        read_pins,
        render_compose,
        render_plan,
        render_unit,
    )
    from warmplan.unit import UNIT_FILE

    spec = build_spec(environment=read_environment(folder))
    locked = read_lock(folder / "lock.yaml").find(name=spec.model.name, revision=spec.model.revision)
    plan = plan_stack(spec=spec, pins=read_pins(REPOSITORY / "compose/pins.yaml"), model=locked)
    files = (
        _compare(folder / "compose.yaml", render_compose(plan)),
        _compare(folder / "plan.md", render_plan(plan)),
        _compare(folder / UNIT_FILE, render_unit(plan)),
    )
    return tuple(one for one in files if one.wanted is not None or one.found is not None)


def write_changed(files: Iterable[Rendered]) -> list[str]:
    """Write the files that differ, remove the one that should not be; returns their names."""
    changed = [one for one in files if one.differs]
    for one in changed:
        if one.wanted is None:
            one.path.unlink()
        else:
            one.path.write_text(one.wanted, encoding="utf-8")
    return [_shown(one.path) for one in changed]


def _folders(name: str | None) -> list[Path]:
    if name:
        return [ENVIRONMENTS / name]
    return sorted(file.parent for file in ENVIRONMENTS.glob("*/environment.yaml"))


def _compare(path: Path, wanted: str | None) -> Rendered:
    found = path.read_text(encoding="utf-8") if path.is_file() else None
    return Rendered(path=path, wanted=wanted, found=found)


def _shown(path: Path) -> str:
    return str(path.relative_to(REPOSITORY) if path.is_relative_to(REPOSITORY) else path)


def _difference(one: Rendered) -> list[str]:
    name = _shown(one.path)
    lines = (one.found or "").splitlines(keepends=True)
    wanted = (one.wanted or "").splitlines(keepends=True)
    return list(difflib.unified_diff(lines, wanted, name, f"{name} (rendered)"))
