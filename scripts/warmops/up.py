"""`up`: from a wish to a stack that answers, looking before touching.

In: an environment and what the command line changes in it. Out: a running stack, and where to chat. Until a
roll begins or `carry_out` does its work nothing that runs is touched: every refusal leaves the host as it
was, but for images, model files and secrets.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

from warmops import doctor, host_cache, preflight
from warmops.answers import Answer
from warmops.changes import ENGINE, WEIGHT_CACHE, Changes
from warmops.changing import carry_out
from warmops.console import failure, heading, say, warn
from warmops.docker import Docker
from warmops.doctor_checks import CHECKS
from warmops.explain import held_in_container
from warmops.host import ensure_docker
from warmops.host_cache import HostCache
from warmops.hostfacts import nvidia_is_usable, read_host
from warmops.image_build import ensure_images
from warmops.model import local_folder, store_for
from warmops.project import ROOT, Project, Remembered
from warmops.project_lock import alone
from warmops.proposal import Proposal, in_force, propose
from warmops.roll_run import (
    CannotRoll,
    begin_roll,
    changes_engine_alone,
    raise_unless_passed,
    require_roll,
    take_up,
)
from warmops.route import prefer_first
from warmops.running import compare
from warmops.secret_files import ensure_secrets
from warmops.waiting import await_chat, await_serving
from warmops.wishes import add_wishes, choose_environment, read_overrides
from warmplan import (
    Pins,
    Plan,
    Setting,
    Spec,
    build_spec,
    explain_identity,
    host_overrides,
    model_from_manifest,
    plan_stack,
    read_environment,
    read_lock,
    read_pins,
    render_unit,
)
from warmplan.addresses import reachable
from warmplan.placement import HUB_VOLUME
from warmplan.spec import Override

_COMMAND_LINE = "command line"
_NOT_OF_GPUS = tuple(check.name for check in CHECKS if check.name not in ("gpu driver", "gpu memory"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_wishes(parser)
    parser.add_argument(
        "--install-docker", choices=("yes", "no"), default="yes", help="install an engine if none"
    )
    parser.add_argument(
        "--replace-weights", action="store_true", help="drop held weights when a change needs it"
    )
    parser.add_argument(
        "--override",
        type=Path,
        metavar="FILE",
        help="a Compose file laid over the generated one, for what this host is special in",
    )
    parser.add_argument("--no-build", action="store_true", help="take the images as they are, by their tags")


def run(arguments: argparse.Namespace) -> int:
    times = Times()
    ensure_docker(install=arguments.install_docker == "yes")
    docker = Docker()
    folder = choose_environment(arguments.env, lambda: nvidia_is_usable(docker))
    overrides = read_overrides(arguments, directory=Path.cwd())
    spec = judge_wish(docker, folder, overrides)
    show_settings(spec)
    override = override_content(arguments.override)
    project = Project(name=spec.project, docker=docker)
    # An override may hand over GPUs in a way of its own, so Docker's runtime is only asked about without one.
    own_way = ("gpu runtime",) if override is not None else ()
    facts = doctor.require(docker, spec, leave_out=own_way)
    pins = read_pins(ROOT / "compose" / "pins.yaml")
    if not arguments.no_build:
        _build_images(docker, spec, pins, disk_free=facts.machine.disk_free_bytes)
    times.note("images")
    with alone(project, "up"):
        raise_unless_passed(take_up(project))
        plan = make_plan(docker, spec, pins, folder)
        if spec.platform == "cuda":
            # The image tells its CUDA now, and the plan how much of a GPU must be free.
            doctor.require(docker, spec, plan=plan, leave_out=_NOT_OF_GPUS)
        times.note("model")
        require_host_cache(project, plan, spec)
        settings = settings_to_remember(plan, spec, overrides)
        proposal = propose(project, plan, settings, override=override, folder=project.folder / "wish")
        changes = _bring_up(proposal, plan, spec, replace=arguments.replace_weights)
        times.note("containers")
        answer = await_serving(project, settings)
        prefer_first(project)
        await_chat(project, settings)
        times.note("ready")
    report(project, plan, spec, settings, answer, changes, times, as_json=arguments.json)
    return 0


def judge_wish(docker: Docker, folder: Path, overrides: tuple[Override, ...]) -> Spec:
    """The wish in a folder with what wins over it. Raises UserError (exit code 2) for one that cannot be."""
    environment = read_environment(folder)
    # What nobody wrote about the GPUs, the host says.
    told = host_overrides(environment=environment, overrides=overrides, host=read_host(docker, "cuda"))
    return build_spec(environment=environment, overrides=(*overrides, *told))


def override_content(given: Path | None) -> bytes | None:
    """The override that this `up` was told, or None."""
    if given is None:
        return None
    if not given.is_file():
        raise failure(f"--override {given}: there is no such file", "give a Compose file", exit_code=2)
    return given.read_bytes()


class Times:
    """Seconds that each part of `up` took."""

    def __init__(self) -> None:
        self._last = self._begun = time.monotonic()
        self.seconds: dict[str, float] = {}

    def note(self, part: str) -> None:
        now = time.monotonic()
        self.seconds[part], self._last = now - self._last, now

    @property
    def total(self) -> float:
        return time.monotonic() - self._begun


def show_settings(spec: Spec) -> None:
    """Each effective setting with its origin; what the command line changed stands out."""
    heading(f"environment {spec.environment}, project {spec.project}")
    shown = [setting for setting in spec.settings if setting.origin != "default"]
    width = max((len(setting.key) for setting in shown), default=0)
    for setting in shown:
        mark = "*" if _COMMAND_LINE in setting.origin else " "
        say(f"{mark} {setting.key:<{width}}  {_value_text(setting)}  ({setting.origin})")
    rest = [f"{one.key} {_value_text(one)}" for one in spec.settings if one.origin == "default"]
    defaults = textwrap.wrap(", ".join(rest), width=110, break_long_words=False, break_on_hyphens=False)
    say("\n".join(["  by default:", *(f"    {line}" for line in defaults)]))


def _value_text(setting: Setting) -> str:
    return json.dumps(setting.value, ensure_ascii=False)


def make_plan(docker: Docker, spec: Spec, pins: Pins, folder: Path) -> Plan:
    """Resolve the model to what is on disk, fetching it when it is not, and plan."""
    version = pins.vllm(spec.platform)
    manifest = resolve(docker, spec, f"warmstack/vllm:{version}-{spec.platform}", folder)
    host = read_host(docker, spec.platform)
    return plan_stack(spec=spec, pins=pins, model=model_from_manifest(manifest), host=host)


def resolve(docker: Docker, spec: Spec, image: str, folder: Path) -> dict[str, Any]:
    """The manifest of the model: as the lock fixed it, or as its name says."""
    name, revision = spec.model.name, spec.model.revision
    if spec.model.is_local:
        return local_folder(name)
    locked = read_lock(folder / "lock.yaml").find(name=name, revision=revision)
    commit = locked.commit if locked is not None else None
    store = store_for(docker, image, spec)
    if spec.model.offline:
        found = store.find_or_refuse(name, commit or revision)
    else:
        found = store.find(name, commit or revision) or store.get(name, revision, commit=commit)
    if locked is not None and locked.digest is not None and locked.digest != found["digest"]:
        warn(
            f"{name}: the lock of this environment says content {locked.digest[:16]}, and "
            f"{found['digest'][:16]} ({found['source']}) is here; `make lock` would take it over"
        )
    return found


def _build_images(docker: Docker, spec: Spec, pins: Pins, *, disk_free: int | None) -> None:
    image = f"warmstack/weight-cache:{pins.vllm(spec.platform)}-{spec.platform}"
    preflight.check_disk(disk_free, images_are_there=docker.inspect(image, "image") is not None)
    ensure_images(docker, "cuda" if spec.platform == "cuda" else "cpu")


def require_host_cache(project: Project, plan: Plan, spec: Spec) -> None:
    """A weight cache on this host must hold what the plan wants; nothing where a container does."""
    text = render_unit(plan)
    if text is None:
        _say_whether_the_unit_runs_on(project)
        return
    project.folder.mkdir(parents=True, exist_ok=True)
    candidate = project.folder / "weight-cache.next.service"
    candidate.write_text(text, encoding="utf-8")
    cache = HostCache(project=project.name, port=spec.weight_cache.port)
    host_cache.require(plan, cache, candidate)
    shutil.copyfile(candidate, project.unit_file)


def _say_whether_the_unit_runs_on(project: Project) -> None:
    """After a change from the host to a container: nobody but a person ends the unit."""
    before = project.host_cache
    if before is not None and before.status() is not None:
        warn(f"{before.unit} still holds weights on this host: sudo systemctl disable --now {before.unit}")
    project.unit_file.unlink(missing_ok=True)


def _bring_up(proposal: Proposal, plan: Plan, spec: Spec, *, replace: bool) -> Changes:
    """Look, touching nothing; then roll or put in force, and carry out. What was changed comes back."""
    project = proposal.project
    try:
        changes = compare(proposal, plan)
        show_changes(changes)
        _refuse(project, changes, plan, replace=replace)
        _ensure_parts(project, plan)
        if _roll_instead(proposal, plan, spec, changes):
            # The rest comes when requests flow again: the gateway, then the chat page behind it.
            carry_out(project, compare(in_force(project), plan))
            return changes.with_action(ENGINE, "roll")
        proposal.put_in_force()
    finally:
        proposal.discard()
    _say_whether_committed(project, plan)
    healed = changes.services("start")
    if healed:
        heading(f"healing: {', '.join(healed)} stood still; weight cache first, then {ENGINE}")
    carry_out(project, changes)
    return changes


def _refuse(project: Project, changes: Changes, plan: Plan, *, replace: bool) -> None:
    """Raise UserError (exit code 1) for what `up` does not do unless told to, or has no memory for."""
    cache = changes.of(WEIGHT_CACHE)
    if changes.drops_weights and not replace:
        why = cache.why if cache is not None else ""
        hint = "make up REPLACE_WEIGHTS=yes, or PROJECT=another-name and other ports beside this one"
        text = f"this would drop the weights that are held: {WEIGHT_CACHE} {cache.action if cache else ''}"
        raise failure(f"{text}, {why}{_what_differs(project, plan)}", hint, exit_code=1)
    preflight.check_gpus(plan, project)
    held = cache is not None and cache.action in ("keep", "recreate")
    preflight.check_memory(plan, weights_are_held=held or plan.unit is not None)


def _what_differs(project: Project, plan: Plan) -> str:
    """The fields of the identity that the weights which are held have otherwise, as a phrase."""
    found = explain_identity(plan.identity, held_in_container(project))
    changed = [f"{field.name} {field.held} → {field.wanted}" for field in found.fields if not field.equal]
    return f": {', '.join(changed)}" if changed else ""


def _roll_instead(proposal: Proposal, plan: Plan, spec: Spec, changes: Changes) -> bool:
    """Roll where the engine is to be made anew on weights that stay; False where that cannot be."""
    if plan.unit is not None or not changes_engine_alone(changes):
        return False
    try:
        require_roll(proposal.project, plan)
    except CannotRoll as reason:
        say(f"no roll: {reason}; {ENGINE} is recreated, and the gateway holds requests meanwhile")
        return False
    heading(f"rolling {ENGINE} to the new settings; requests are answered all the time")
    raise_unless_passed(
        begin_roll(proposal, drain_seconds=spec.engine.drain_seconds, standby=spec.engine.standby)
    )
    return True


def show_changes(changes: Changes) -> None:
    for item in changes.items:
        say(f"  {item.service:<13} {item.action:<9} {item.why}")


def _say_whether_committed(project: Project, plan: Plan) -> None:
    committed = ROOT / "compose" / "environments" / plan.environment / "compose.yaml"
    same = committed.exists() and committed.read_bytes() == project.compose_file.read_bytes()
    word = "equals" if same else "differs from"
    say(f"{project.compose_file.relative_to(ROOT)} {word} the committed file of {plan.environment}")


def settings_to_remember(plan: Plan, spec: Spec, overrides: tuple[Override, ...]) -> Remembered:
    """What later commands need to know of this wish."""
    chat = spec.open_webui
    return Remembered(
        environment=plan.environment,
        overrides={override.key: override.value for override in overrides},
        model=plan.model.name,
        served_model=plan.model.served_name,
        identity=plan.identity.value,
        platform=plan.platform,
        ranks=spec.tensor,
        gateway_url=plan.api_url.removesuffix("/v1"),
        webui_url=f"http://{reachable(chat.host)}:{chat.port}" if chat.enabled else None,
        needs_api_key=spec.gateway.api_key,
        host_cache_port=spec.weight_cache.port if spec.weight_cache.on_host else None,
        standby=spec.engine.standby,
        drain_seconds=spec.engine.drain_seconds,
        restart_drain_seconds=spec.restart_drain_seconds,
    )


def _ensure_parts(project: Project, plan: Plan) -> None:
    """Secrets and the shared volume."""
    made = ensure_secrets(project.secrets, plan.secrets)
    if made:
        say(f"made secrets: {', '.join(made)}")
    if plan.unit is None and project.docker.inspect(HUB_VOLUME, "volume") is None:
        project.docker.run("volume", "create", HUB_VOLUME)


def report(
    project: Project,
    plan: Plan,
    spec: Spec,
    settings: Remembered,
    answer: Answer,
    changes: Changes,
    times: Times,
    *,
    as_json: bool,
) -> None:
    """Where to chat, how to sign in, how to ask by API, what it took."""
    evidence = project.engine_evidence(ranks=settings.ranks)
    if as_json:
        facts = {
            "project": project.name,
            "chat_url": plan.chat_url,
            "api_url": plan.api_url,
            "model": settings.served_model,
            "identity": settings.identity,
            "answer": answer.text,
            "outcome": evidence.outcome,
            "changes": {item.service: item.action for item in changes.items},
            "seconds": {name: round(value, 2) for name, value in times.seconds.items()},
        }
        print(json.dumps(facts, indent=2, ensure_ascii=False))
        return
    lines = [
        f"answer    {answer.text.strip()!r} (first token after {answer.first_token_seconds:.2f} s)",
        f"weights   {evidence.outcome}" + (f": {evidence.reason}" if evidence.reason else ""),
        f"API       {_curl(project, plan, settings)}",
    ]
    if plan.chat_url is not None:
        password = (project.secrets / "webui_admin_password").relative_to(ROOT)
        lines.append(f"sign in   {spec.open_webui.admin_email}, password: cat {password}")
        lines.append(f"chat      {plan.chat_url}")
    parts = ", ".join(f"{name} {value:.1f} s" for name, value in times.seconds.items())
    lines.append(f"took      {times.total:.1f} s ({parts})")
    sys.stdout.write("\n".join(lines) + "\n")


def _curl(project: Project, plan: Plan, settings: Remembered) -> str:
    """A request to the API as one could paste it."""
    question = [{"role": "user", "content": "Hello"}]
    wanted = {"model": settings.served_model, "messages": question, "temperature": 0}
    body = json.dumps(wanted, ensure_ascii=False)
    key = f' -H "Authorization: Bearer $(cat {project.secrets}/api_key)"' if settings.needs_api_key else ""
    kind = "-H 'Content-Type: application/json'"
    return f"curl {plan.api_url}/chat/completions {kind}{key} -d {shlex.quote(body)}"
