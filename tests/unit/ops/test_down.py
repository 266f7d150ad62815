"""`down`: what becomes of volumes that the Compose file does not have any more."""

from __future__ import annotations

from pathlib import Path

from warmops.docker import Completed, Docker
from warmops.down import remove_left_volumes, volumes_of
from warmops.project import Project


class Volumes(Docker):
    """A docker with volumes of one project, one of which is in use."""

    left = ("p_open-webui", "p_compile-0.31")

    def capture(self, *arguments: str, **_: object) -> Completed:  # type: ignore[override]
        assert arguments[-1] == "label=com.docker.compose.project=p"
        return Completed(command=arguments, returncode=0, stdout="\n".join(self.left), stderr="")

    def run(self, *arguments: str, check: bool = True, **_: object) -> Completed:  # type: ignore[override]
        name = arguments[-1]
        assert arguments == ("volume", "rm", name)
        used = name == "p_compile-0.31"
        assert not check
        if not used:
            object.__setattr__(self, "left", tuple(one for one in self.left if one != name))
        return Completed(command=arguments, returncode=int(used), stdout="", stderr="")


def test_volumes_that_the_file_does_not_have_any_more_go_too(tmp_path: Path) -> None:
    project = Project(name="p", state=tmp_path, docker=Volumes())
    assert volumes_of(project) == ["p_open-webui", "p_compile-0.31"]
    assert remove_left_volumes(project) == ["p_compile-0.31"], "what is in use stays, and is told"
