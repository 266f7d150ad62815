"""What is refused before anything is created: disk, memory, and what the containers cannot read (case 25)."""

from __future__ import annotations

from pathlib import Path

import pytest

from warmops import preflight
from warmops.model import folder_problems, unreadable_files
from warmplan import UserError

GIB = 1024**3


@pytest.mark.parametrize(("free", "there"), [(None, False), (2 * GIB, True), (10 * GIB, False)])
def test_room_on_the_disk(free: int | None, there: bool) -> None:
    preflight.check_disk(free, images_are_there=there)


@pytest.mark.parametrize(("free", "there"), [(GIB - 1, True), (10 * GIB - 1, False)])
def test_no_room_on_the_disk(free: int, there: bool) -> None:
    with pytest.raises(UserError, match="are needed where Docker keeps its data") as caught:
        preflight.check_disk(free, images_are_there=there)
    assert caught.value.exit_code == 1


@pytest.mark.parametrize(
    ("needed", "shm", "keys"),
    [(4, 4, []), (5, 4, ["memory"]), (4, 5, ["/dev/shm"]), (5, 5, ["memory", "/dev/shm"])],
)
def test_memory_and_shared_memory(needed: int, shm: int, keys: list[str]) -> None:
    """Case 22: /dev/shm smaller than needed is said before a container exists."""
    assert [problem.key for problem in preflight.memory_problems(needed, shm, 4)] == keys


def test_a_folder_that_is_not_there() -> None:
    assert folder_problems("/no/such/folder") == ("there is no folder /no/such/folder",)


def test_what_the_containers_cannot_read(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_text("")
    tmp_path.chmod(0o755)
    assert folder_problems(str(tmp_path)) == ()
    (tmp_path / "model.safetensors").chmod(0o600)
    assert unreadable_files(str(tmp_path)) == [tmp_path / "model.safetensors"]
    assert "cannot be read by user 10001" in folder_problems(str(tmp_path))[0]
    tmp_path.chmod(0o700)
    assert unreadable_files(str(tmp_path))[0] == tmp_path


def test_a_process_of_the_host_goes_through_the_folders_above(tmp_path: Path) -> None:
    model = tmp_path / "closed" / "model"
    model.mkdir(parents=True)
    model.chmod(0o755)
    assert folder_problems(str(model)) == ()
    model.parent.chmod(0o700)
    assert f"{model.parent} cannot be read by user 10001" in folder_problems(str(model), on_host=True)
