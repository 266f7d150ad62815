"""The nursery with real processes and a fake vLLM package: engines come out of one set of imports, and
nothing is lost without it.
"""

import contextlib
import importlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from support.pid_one import CODE, ROOT, Program, engine
from warmstack_engine.late_imports import Recorder, make_record, read_record
from warmstack_engine.preimport import ModuleList, read_list, write_list
from warmstack_shared import forking
from warmstack_shared.local_http import get_tcp
from warmstack_shared.processes import all_pids, command_of, parents

IMPORTED = "importing the fake vLLM"


def ask_restart(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-S", str(ROOT / "vllm-image/warmstack_probe.py"), "restart"],
        env={"WARMSTACK_ENGINE_SOCKET": str(folder / "engine.sock")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def nursery_pid(running: Program) -> int:
    return int(running.wait_for("nursery", state="ready")["pid"])


def imports(running: Program) -> int:
    return sum(1 for line in running.lines if line.startswith(IMPORTED))


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def test_an_engine_is_forked_and_belongs_to_pid_one(tmp_path: Path) -> None:
    with engine(tmp_path, {"lines": ["hello"]}, WARMSTACK_NURSERY="on") as running:
        running.wait_for("ready")
        serve = running.wait_for("serve")
        assert serve["nursery"] is True
        assert parents()[serve["pid"]] == running.process.pid
        assert serve["pid"] > running.wait_for("pids-moved")["past"]
        assert "hello" in running.lines
        assert os.getsid(serve["pid"]) == serve["pid"], "a session of its own"
        metrics = get_tcp(running.status_port, "/metrics", 5).body.decode()
        assert 'warmstack_engine_nursery{state="ready"} 1' in metrics
        assert 'warmstack_engine_start_phase_seconds{phase="wait for nursery"}' in metrics
        assert running.end() == 0
        assert running.below() == []


def test_a_restart_costs_no_import_and_says_when_the_old_engine_is_gone(tmp_path: Path) -> None:
    with engine(tmp_path, {}, WARMSTACK_NURSERY="on") as running:
        running.wait_for("ready")
        first = running.wait_for("serve")["pid"]
        told = ask_restart(tmp_path)
        assert (told.returncode, json.loads(told.stdout)) == (0, {"start": "ready"})
        assert first not in all_pids()
        running.wait_for("ready", count=2)
        assert running.wait_for("serve", count=2)["nursery"] is True
        assert imports(running) == 1
        assert "engine-exit" not in running.events(), "nobody calls it a crash"
        stopped = running.events().index("engine-stopped")
        assert running.events()[stopped + 1] == "engine-start"


def test_a_killed_engine_comes_back_out_of_the_nursery(tmp_path: Path) -> None:
    with engine(tmp_path, {"orphan": True}, WARMSTACK_NURSERY="on") as running:
        running.wait_for("ready")
        nursery = nursery_pid(running)
        kill(running.wait_for("serve")["pid"])
        end = running.wait_for("engine-exit")
        assert end["signal"] == signal.SIGKILL
        assert "killed what it left" in end["sentence"]
        running.wait_for("ready", count=2)
        assert running.wait_for("serve", count=2)["nursery"] is True
        assert nursery in running.below(), "spared when the engine's leftovers were killed"
        assert imports(running) == 1


def test_without_its_nursery_an_engine_starts_from_the_command_line(tmp_path: Path) -> None:
    late = {"WARMSTACK_NURSERY": "on", "WARMSTACK_CARE_SECONDS": "600"}
    with engine(tmp_path, {}, **late) as running:
        running.wait_for("ready")
        kill(nursery_pid(running))
        running.wait_for("nursery", state="gone")
        assert ask_restart(tmp_path).returncode == 0
        running.wait_for("ready", count=2)
        serve = running.wait_for("serve", count=2)
        assert serve["nursery"] is False
        assert "vllm.py serve" in command_of(serve["pid"])


def test_a_nursery_that_is_gone_is_made_anew_while_the_engine_serves(tmp_path: Path) -> None:
    with engine(tmp_path, {}, WARMSTACK_NURSERY="on") as running:
        running.wait_for("ready")
        kill(nursery_pid(running))
        running.wait_for("nursery", count=2, state="ready")
        assert running.events().count("engine-start") == 1
        assert ask_restart(tmp_path).returncode == 0
        assert running.wait_for("serve", count=2)["nursery"] is True


def test_a_nursery_that_has_just_ended_is_not_made_anew_at_once(tmp_path: Path) -> None:
    """Else a start that is asked for then would wait for its imports, or not, by chance."""
    care = 3.0
    with engine(tmp_path, {}, WARMSTACK_NURSERY="on", WARMSTACK_CARE_SECONDS=str(care)) as running:
        running.wait_for("ready")
        kill(nursery_pid(running))
        made = running.wait_for("nursery", count=2, state="importing")["t"]  # care is due again 3 s after it
        second = running.wait_for("nursery", count=2, state="ready")["pid"]
        time.sleep(max(0.0, made + 0.8 * care - time.time()))
        kill(second)
        gone = running.wait_for("nursery", count=2, state="gone")["t"]
        assert running.wait_for("nursery", count=3, state="importing")["t"] - gone >= care


def test_a_vllm_that_cannot_be_imported_is_said_by_vllm_itself(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    (broken / "vllm").mkdir(parents=True)
    (broken / "vllm" / "__init__.py").write_text("import threading\nthreading.Timer(600, print).start()\n")
    path = os.pathsep.join((str(broken), CODE))
    with engine(tmp_path, {}, WARMSTACK_NURSERY="on", PYTHONPATH=path) as running:
        off = running.wait_for("nursery", state="off")
        assert "vllm.entrypoints.cli.main there are threads: Thread-1" in off["sentence"]
        running.wait_for("ready")
        assert running.wait_for("serve")["nursery"] is False
        assert read_list(tmp_path / "imports.json").unfit == ("vllm.entrypoints.cli.main",)


def test_a_crash_before_it_is_ready_counts_as_ever(tmp_path: Path) -> None:
    wish = {"lines": ["vllm serve: error: unrecognized arguments: --nope"], "exit": 2}
    with engine(tmp_path, wish, WARMSTACK_NURSERY="on") as running:
        gave_up = running.wait_for("gave-up")
        assert "exit code 2: error: unrecognized arguments: --nope" in gave_up["sentence"]
        assert [mark["nursery"] for mark in running.marks if mark["event"] == "serve"] == [True, True]
        # A restart that is asked for begins anew: what was wrong may have been mended outside.
        assert ask_restart(tmp_path).returncode == 0
        running.wait_for("serve", count=4)


def test_restart_without_a_nursery_and_without_an_answer(tmp_path: Path) -> None:
    with engine(tmp_path, {}) as running:
        running.wait_for("ready")
        assert json.loads(ask_restart(tmp_path).stdout) == {"start": "off"}
        running.wait_for("ready", count=2)
        assert [mark["nursery"] for mark in running.marks if mark["event"] == "serve"] == [False, False]
        assert "nursery" not in running.events()
    told = ask_restart(tmp_path)
    assert told.returncode == 1
    assert "PID 1 does not answer" in told.stderr


def test_a_port_that_is_taken_costs_the_metrics_and_nothing_else(tmp_path: Path) -> None:
    with socket.create_server(("0.0.0.0", 0)) as taken:
        port = taken.getsockname()[1]
        with engine(tmp_path, {}, WARMSTACK_ENGINE_STATUS_PORT=str(port)) as running:
            running.wait_for("ready")
            assert f"no /metrics on port {port}: Address already in use" in running.lines


def test_restart_while_the_weight_cache_is_waited_for(tmp_path: Path) -> None:
    with engine(tmp_path, {}, {"state": "loading"}, WARMSTACK_WAIT_SECONDS="600") as running:
        running.wait_for("engine-start")
        assert ask_restart(tmp_path).returncode == 0
        assert running.wait_for("engine-start", count=2)["attempt"] == 2


def test_what_an_engine_imports_late_the_nursery_learns(tmp_path: Path) -> None:
    with engine(tmp_path, {"import": "colorsys"}, WARMSTACK_NURSERY="on") as running:
        running.wait_for("nursery", state="learned", seconds=60)
        assert "colorsys" in read_list(tmp_path / "imports.json").learned
        assert ask_restart(tmp_path).returncode == 0
        running.wait_for("ready", count=2)
    # The next container's nursery knows it from the start.
    with engine(tmp_path, {"import": "colorsys"}, WARMSTACK_NURSERY="on") as running:
        running.wait_for("ready")
        assert [line for line in running.lines if line == "colorsys was there"]


@pytest.mark.parametrize("text", ["", "[]", '{"learned": 1, "unfit": []}', '{"learned": []}'])
def test_a_list_that_can_not_be_read_is_an_empty_one(tmp_path: Path, text: str) -> None:
    path = tmp_path / "imports.json"
    path.write_text(text)
    assert read_list(path) == ModuleList()
    write_list(path, ModuleList().with_learned(["b", "a", "b"]).with_unfit("c"))
    assert read_list(path) == ModuleList(learned=("b", "a"), unfit=("c",))
    write_list(Path("/proc/nowhere/imports.json"), ModuleList())  # nothing is raised


SPOILT = {
    "a thread": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(9,), daemon=True).start()\n"
    ),
    "a child process": "import subprocess\nPROCESS = subprocess.Popen(['true'])\n",
    "CUDA": "import sys, types\nsys.modules['torch'] = types.SimpleNamespace(cuda=types.SimpleNamespace("
    "is_initialized=lambda: True))\n",
    "can't use CUDA": "import os, sys, types\nHERE = os.getpid()\nsys.modules['torch'] = "
    "types.SimpleNamespace(cuda=types.SimpleNamespace(_is_in_bad_fork=lambda: os.getpid() != HERE))\n",
}


@pytest.mark.parametrize(("what", "text"), SPOILT.items())
def test_what_spoils_a_process_is_named_and_then_left_out(tmp_path: Path, what: str, text: str) -> None:
    (tmp_path / "fit_one.py").write_text("")
    (tmp_path / "unfit_one.py").write_text(text)
    names = ["no_such_module", "fit_one", "unfit_one"]
    code = (
        "from warmstack_engine.preimport import UnfitError, import_ahead\n"
        f"print(import_ahead({names}, ['unfit_one']))\n"
        f"try: import_ahead({names}, [], thorough=True)\n"
        "except UnfitError as error: print(error.module, '|', error)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": os.pathsep.join((CODE, str(tmp_path))), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    first, second = told.stdout.splitlines()
    assert first == "['fit_one']"
    assert second.startswith("unfit_one | after the import of unfit_one ")
    assert what.split()[-1].lower() in second.lower()


def test_new_modules_are_tried_out_where_they_can_spoil_nothing(tmp_path: Path) -> None:
    for name, text in (
        ("fit_one", ""),
        ("fit_two", ""),
        ("spoils", SPOILT["a thread"]),
        ("dies", "import os\nos.abort()"),
    ):
        (tmp_path / f"{name}.py").write_text(text)
    code = (
        "import sys\n"
        "from warmstack_engine.preimport import ModuleList, try_out\n"
        "from warmstack_shared.forking import why_unfit\n"
        "names = ['fit_one', 'spoils', 'no_such_module', 'dies', 'fit_two']\n"
        "print(try_out(names, ModuleList(learned=('old',))))\n"
        "print(why_unfit(), {*names} & {*sys.modules})\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": os.pathsep.join((CODE, str(tmp_path))), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert told.stdout.splitlines() == [
        "ModuleList(learned=('old', 'fit_one', 'fit_two'), unfit=('spoils', 'dies'))",
        "None set()",
    ], told.stderr


def test_only_real_imports_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    record = make_record()
    monkeypatch.setattr(sys, "meta_path", [Recorder(record), *sys.meta_path])
    for name in ("colorsys", "this.is.not.there"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    importlib.util.find_spec("colorsys")
    assert read_record(record) == []
    importlib.import_module("colorsys")
    with contextlib.suppress(ImportError):
        importlib.import_module("no_such_module_at_all")
    assert read_record(record) == ["colorsys", "no_such_module_at_all"]
    os.close(record)


@pytest.mark.parametrize(
    ("answer", "why"), [(3, None), (0, "CUDA is initialised"), (100, "CUDA is initialised"), (None, None)]
)
def test_the_driver_says_whether_it_was_initialised(
    answer: int | None, why: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3 is CUDA_ERROR_NOT_INITIALIZED; None: no driver is installed. (A real one: docs/measurements.)"""

    class Driver:
        def cuDeviceGetCount(self, count: object) -> int:
            assert answer is not None
            return answer

    def load(name: str) -> Driver:
        if answer is None:
            raise OSError(name)
        return Driver()

    monkeypatch.setattr(forking.ctypes, "CDLL", load)
    monkeypatch.setattr(forking, "_has_children", lambda: False)
    monkeypatch.setattr(forking.threading, "enumerate", lambda: [threading.main_thread()])
    assert forking.why_unfit() == why
