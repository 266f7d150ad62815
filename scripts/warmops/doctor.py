"""`doctor`: what of this host stands in the way of an environment, each finding with its fix.

In: an environment (the one named, else that of the last `up`, else by what the host has) and the host. Out:
a list that can be pasted into an issue, or JSON; exit code 1 when a check fails. It changes nothing.
`require` is for `up`: it raises what is essential and fails.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Final

from warmops import table
from warmops.docker import Docker
from warmops.doctor_checks import CHECKS, judge_all
from warmops.doctor_facts import DoctorFacts
from warmops.doctor_gather import gather_facts
from warmops.doctor_verdicts import Finding, Level
from warmops.hostfacts import nvidia_is_usable
from warmops.wanted import Wanted, find_wanted, plan_wanted
from warmops.wishes import add_wishes, complete
from warmplan import Plan, Problem, Spec, UserError
from warmplan.errors import HOST_UNUSABLE, NOT_SO, WRONG_INPUT

_COLOURS: Final[dict[Level, str]] = {
    "ok": table.GREEN,
    "warn": table.YELLOW,
    "fail": table.RED,
    "skip": table.DIM,
}
# What no change of the environment mends: the host cannot run it at all.
_HOST: Final = frozenset({"api", "engine", "compose", "gpu runtime", "gpu driver"})
# What another environment mends.
_WISH: Final = frozenset({"environment", "model folder"})


@dataclass(frozen=True, kw_only=True)
class Patient:
    """The wish that the host is checked for; `error` is why there is no wish, or no plan of it."""

    wanted: Wanted | None
    plan: Plan | None
    error: UserError | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_wishes(parser)


def run(arguments: argparse.Namespace) -> int:
    docker = Docker()
    patient = find_patient(arguments, docker)
    problem = patient.error.problems[0] if patient.error is not None else None
    facts = gather_facts(
        docker,
        spec=patient.wanted.spec if patient.wanted is not None else None,
        plan=patient.plan,
        problem=f"{problem.key}: {problem.problem}" if problem is not None else None,
        hint=problem.hint if problem is not None else None,
    )
    findings = tuple(replace(f, fix=complete(f.fix, arguments)) for f in judge_all(facts))
    if arguments.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2, ensure_ascii=False))
    else:
        print("\n".join(finding_lines(findings)))
    return 1 if any(finding.level == "fail" for finding in findings) else 0


def find_patient(arguments: argparse.Namespace, docker: Docker) -> Patient:
    """The environment and its plan, as far as they can be had: the host is checked all the same."""
    wanted = None
    try:
        wanted = find_wanted(arguments, lambda: nvidia_is_usable(docker))
        return Patient(wanted=wanted, plan=plan_wanted(wanted), error=None)
    except UserError as error:
        return Patient(wanted=wanted, plan=None, error=error)


def essential(facts: DoctorFacts, *, leave_out: Collection[str] = ()) -> tuple[Finding, ...]:
    """What fails of that without which no stack comes up; `leave_out` are names of checks not to ask."""
    checks = tuple(check for check in CHECKS if check.essential and check.name not in leave_out)
    return tuple(finding for finding in judge_all(facts, checks) if finding.level == "fail")


def require(
    docker: Docker, spec: Spec, *, plan: Plan | None = None, leave_out: Collection[str] = ()
) -> DoctorFacts:
    """Raise UserError unless this host can run the wish, as far as it is known before or with its plan.

    Gives what it learnt, so that nobody asks again.
    """
    facts = gather_facts(docker, spec=spec, plan=plan, network=False)
    refuse(essential(facts, leave_out=leave_out))
    return facts


def refuse(findings: Iterable[Finding]) -> None:
    """Raise what was found as one UserError: exit code 3 for an unusable host, 2 for a wrong wish, else 1."""
    found = tuple(findings)
    if not found:
        return
    names = {finding.name for finding in found}
    code = HOST_UNUSABLE if names & _HOST else WRONG_INPUT if names & _WISH else NOT_SO
    problems = [Problem(key=finding.name, problem=finding.sentence, hint=finding.fix) for finding in found]
    raise UserError(problems, exit_code=code)


def finding_lines(findings: Iterable[Finding]) -> list[str]:
    """A line for each finding, its fix below it, and a sum."""
    found = tuple(findings)
    width = max(len(finding.name) for finding in found)
    lines = []
    for finding in found:
        level = table.coloured(f"{finding.level:<4}", _COLOURS[finding.level])
        lines.append(f"{level}  {finding.name:<{width}}  {finding.sentence}")
        if finding.fix is not None:
            lines.append(f"{'':4}  {'':<{width}}  fix: {finding.fix}")
    count = {level: sum(1 for finding in found if finding.level == level) for level in _COLOURS}
    lines.append(", ".join(f"{number} {level}" for level, number in count.items()))
    return lines
