"""One command at a time: real processes that hold a project, and one that is killed while it does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from warmops.project import Project
from warmops.project_lock import alone, at_work
from warmplan.errors import UserError

HOLDER = """
import sys
from pathlib import Path
from warmops.project import Project
from warmops.project_lock import alone
with alone(Project(name="p", state=Path(sys.argv[1])), "roll"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_command_is_refused_and_the_first_one_named(tmp_path: Path) -> None:
    project = Project(name="p", state=tmp_path)
    assert at_work(project) is None
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert at_work(project) == f"`warm roll` (process {holder.pid})"
        said = rf"`warm roll` \(process {holder.pid}\) is at work on p"
        with pytest.raises(UserError, match=said) as raised, alone(project, "up"):
            pytest.fail("two at once")
        assert raised.value.exit_code == 1
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    assert at_work(project) is None
    with alone(project, "up"):
        assert at_work(project) == f"`warm up` (process {os.getpid()})"
    assert at_work(project) is None


def test_an_error_frees_the_project(tmp_path: Path) -> None:
    project = Project(name="p", state=tmp_path)
    with pytest.raises(ValueError, match="wrong"), alone(project, "up"):
        raise ValueError("wrong")
    assert at_work(project) is None
