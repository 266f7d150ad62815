"""warmplan: from a wish (environment.yaml) to a plan and the Compose file that carries it out.

In: files and values handed over by the caller. Out: frozen dataclasses and text. It starts no process, opens
no socket and never reads the process environment, so the same input always gives the same bytes.

Flow, and the order of imports: document → environment → spec → identity → budget → plan → render.
"""

from warmplan.environment import Environment, read_environment
from warmplan.errors import Problem, UserError
from warmplan.explain import Explanation, FieldComparison, explain_identity, held_fields
from warmplan.host import GpuFacts, HostFacts
from warmplan.host_wishes import host_overrides
from warmplan.lock import (
    Lock,
    LockChange,
    LockedModel,
    lock_changes,
    model_from_config,
    model_from_manifest,
    read_lock,
    render_lock,
)
from warmplan.memory import bar_pieces, meaning_lines, memory_facts, size_columns
from warmplan.pins import Pins, read_pins
from warmplan.plan import Plan, plan_stack
from warmplan.render import render_compose, render_plan, render_unit
from warmplan.spec import Override, Setting, Spec, build_spec

__all__ = [
    "Environment",
    "Explanation",
    "FieldComparison",
    "GpuFacts",
    "HostFacts",
    "Lock",
    "LockChange",
    "LockedModel",
    "Override",
    "Pins",
    "Plan",
    "Problem",
    "Setting",
    "Spec",
    "UserError",
    "bar_pieces",
    "build_spec",
    "explain_identity",
    "held_fields",
    "host_overrides",
    "lock_changes",
    "meaning_lines",
    "memory_facts",
    "model_from_config",
    "model_from_manifest",
    "plan_stack",
    "read_environment",
    "read_lock",
    "read_pins",
    "render_compose",
    "render_lock",
    "render_plan",
    "render_unit",
    "size_columns",
]
