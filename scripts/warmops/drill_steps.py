"""Carrying out a drill: the steps of its plan on real containers, and the observation that is judged.

In: a drill, a running project. Out: a `Run` with findings. What must be so is the matter of `drill_plan`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType

from warmops.changes import ENGINE, WEIGHT_CACHE, Container
from warmops.console import failure, say
from warmops.drill_plan import CacheView, Drill, Footprint, Observation, Step, judge
from warmops.evidence import has_nursery, nursery_pid
from warmops.processes import (
    below_first,
    engine_processes,
    engine_tree,
    footprint,
    host_processes,
    kill_by_id,
    memory_of_project,
    processes,
    still_alive,
)
from warmops.project import Project, Remembered
from warmops.report import Run
from warmops.restart import answer_now
from warmops.starts import (
    EngineFailed,
    Recycling,
    await_held,
    measure_start,
    recreate_engine,
    renew_engine,
    start_all,
    start_engine,
    stop_all,
    stop_engine,
)

# The steps that take an engine away end where the measured start begins.
_TAKE_AWAY = frozenset({Step.STOP_ALL, Step.STOP_ENGINE, Step.RENEW_ENGINE, Step.KILL_ENGINE})
_BRING_BACK = frozenset({Step.START_ALL, Step.START_ENGINE, Step.RECREATE_ENGINE, Step.AWAIT_ENGINE})


def run_drill(drill: Drill, project: Project, settings: Remembered, *, repetition: int) -> Run:
    """One repetition: look, do, look again, judge."""
    before_answer = answer_now(project, settings)
    before_view, before_use = view_cache(project), _footprint(project)
    stage = _Stage(project, settings)
    error: str | None = None
    with _DegradedWatch(project) as watch:
        try:
            for step in drill.steps:
                if step not in _TAKE_AWAY | _BRING_BACK:
                    say(f"step: {step}")
                    stage.prepare(step)
        except EngineFailed as failed:
            error = str(failed)
        away = [step for step in drill.steps if step in _TAKE_AWAY]
        back = [step for step in drill.steps if step in _BRING_BACK]
        start = measure_start(
            project,
            settings,
            Recycling(take_away=lambda: stage.carry_out(away), bring_back=lambda: stage.carry_out(back)),
        )
    engine = project.container(ENGINE)
    seen = Observation(
        evidence=start.evidence,
        answer_before=before_answer,
        answer_after=start.answer.text if start.answer is not None else None,
        cache_before=before_view,
        cache_after=view_cache(project),
        footprint_before=before_use,
        footprint_after=_footprint(project),
        degraded_seen=watch.seen,
        answered_while_degraded=stage.answered_while_degraded,
        surviving_pids=still_alive(stage.old_processes),
        engine_identity=engine.identity if engine is not None else None,
        has_nursery=engine is not None and has_nursery(project.log(engine)),
        seconds=start.seconds,
        error=error or start.error,
    )
    return Run(
        kind=drill.name,
        repetition=repetition,
        evidence=start.evidence,
        findings=judge(drill, seen),
        phases=start.phases,
        seconds=start.seconds,
        memory_bytes=memory_of_project(project),
        answer=seen.answer_after,
    )


def view_cache(project: Project) -> CacheView | None:
    """The weight cache as it is now; None when there is none or its supervisor does not answer."""
    cache, status = project.container(WEIGHT_CACHE), project.supervisor_status()
    if cache is None or status is None:
        return None
    return CacheView(
        container_id=cache.id,
        started_at=cache.started_at,
        rank_pids=tuple(int(pid) for pid in status.get("rank_pids", ())),
        state=str(status.get("state")),
        identity=str(status.get("identity")),
    )


class _Stage:
    """The steps as commands, and what they saw on the way."""

    def __init__(self, project: Project, settings: Remembered) -> None:
        self._project, self._settings = project, settings
        self.old_processes: Mapping[int, int] = {}
        self.answered_while_degraded: bool | None = None

    def prepare(self, step: Step) -> None:
        """A step before the engine is taken away."""
        steps: Mapping[Step, Callable[[], None]] = {
            Step.KILL_PRELOAD: self._kill_preload,
            Step.KILL_NURSERY: self._kill_nursery,
            Step.ASK_WHILE_DEGRADED: self._ask_while_degraded,
            Step.AWAIT_HELD: lambda: await_held(self._project),
        }
        steps[step]()

    def carry_out(self, steps: list[Step]) -> None:
        """Steps that take the engine away or bring it back."""
        commands: Mapping[Step, Callable[[], None]] = {
            Step.STOP_ALL: self._stop_all,
            Step.START_ALL: lambda: start_all(self._project, self._settings),
            Step.STOP_ENGINE: self._stop_engine,
            Step.RENEW_ENGINE: self._renew_engine,
            Step.START_ENGINE: lambda: start_engine(self._project),
            Step.RECREATE_ENGINE: lambda: recreate_engine(self._project),
            Step.KILL_ENGINE: self._kill_engine,
            Step.AWAIT_ENGINE: lambda: None,
        }
        for step in steps:
            say(f"step: {step}")
            commands[step]()

    def _stop_all(self) -> None:
        self._remember_processes()
        stop_all(self._project)

    def _stop_engine(self) -> None:
        self._remember_processes()
        stop_engine(self._project)

    def _kill_engine(self) -> None:
        engine = self._project.container(ENGINE)
        if engine is None:
            raise failure("there is no engine to kill", f"make up PROJECT={self._project.name}", exit_code=1)
        victims = engine_tree(self._project, engine)
        self.old_processes = host_processes(self._project.docker, engine.id, among=victims)
        kill_by_id(self._project.docker, engine.id, (process.pid for process in victims))

    def _renew_engine(self) -> None:
        self.old_processes = engine_processes(self._project)
        if not renew_engine(self._project):
            raise EngineFailed("the engine's container gave no new process")

    def _kill_nursery(self) -> None:
        engine = self._project.container(ENGINE)
        pid = nursery_pid(self._project.log(engine)) if engine is not None else None
        if engine is None or pid is None:
            say("there is no nursery here; the start that follows is one without it anyway")
            return
        kill_by_id(self._project.docker, engine.id, [pid])
        self._await_no_nursery(engine)

    def _await_no_nursery(self, engine: Container, seconds: float = 30.0) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if nursery_pid(self._project.log(engine)) is None:
                return
            time.sleep(0.1)
        raise EngineFailed("the engine's PID 1 did not notice that the nursery was killed")

    def _kill_preload(self) -> None:
        cache = self._project.container(WEIGHT_CACHE)
        view = view_cache(self._project)
        if cache is None or view is None or not view.rank_pids:
            raise EngineFailed("the weight cache names no process that holds the weights")
        victims = below_first(processes(self._project.docker, cache.id))
        kill_by_id(self._project.docker, cache.id, (process.pid for process in victims))
        self._await_not_held(view)

    def _await_not_held(self, before: CacheView, seconds: float = 30.0) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            now = view_cache(self._project)
            if now is not None and (now.state != "held" or now.rank_pids != before.rank_pids):
                return
            time.sleep(0.1)
        raise EngineFailed("the supervisor did not notice that its child was killed")

    def _ask_while_degraded(self) -> None:
        self.answered_while_degraded = answer_now(self._project, self._settings) is not None

    def _remember_processes(self) -> None:
        engine = self._project.container(ENGINE)
        if engine is not None and engine.running:
            self.old_processes = host_processes(self._project.docker, engine.id)  # its first one goes too


class _DegradedWatch:
    """Looks at the supervisor while a drill runs, and remembers whether it ever said degraded."""

    def __init__(self, project: Project, every_seconds: float = 1.0) -> None:
        self._project, self._every = project, every_seconds
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, name="degraded-watch", daemon=True)
        self.seen = False

    def __enter__(self) -> _DegradedWatch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._end.wait(self._every):
            status = self._project.supervisor_status()
            self.seen = self.seen or bool(status and status.get("degraded"))


def _footprint(project: Project) -> Footprint:
    cache = project.container(WEIGHT_CACHE)
    return footprint(project.docker, cache.id) if cache is not None and cache.running else Footprint()
