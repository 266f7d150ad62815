"""In which order images are built, what runs side by side, and what a failure leaves undone; none is made."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from warmops import image_build, wheelhouse
from warmops.docker import Completed, Docker
from warmops.image_build import _Builds
from warmops.images import Image
from warmops.pins import REPOSITORY, read_pins
from warmops.wheelhouse import WheelList
from warmplan.errors import Problem, UserError


def image(name: str, parent: str | None = None, wheels: str | None = None) -> Image:
    listed = None if wheels is None else WheelList(name=wheels, locks=())
    return Image(tag=name, dockerfile=f"{name}/Dockerfile", parent=parent, wheels=listed)


STALE = (
    image("base"),
    image("small-packages", "base", "small"),
    image("small", "small-packages"),
    image("large-packages", "base", "large"),
    image("large", "large-packages"),
)


@dataclass(frozen=True, kw_only=True)
class NoDocker(Docker):
    """An engine without images."""

    def inspect(self, name: str, kind: str = "container") -> dict[str, Any] | None:
        return None

    def capture(self, *arguments: str, **options: Any) -> Completed:
        return Completed(command=arguments, returncode=0, stdout="", stderr="")


@dataclass(frozen=True, kw_only=True)
class Recorded(_Builds):
    """Notes what begins and ends; the builds `together` wait for each other."""

    docker: Docker = field(default_factory=NoDocker)
    hashes: dict[str, str] = field(default_factory=dict)
    repository: Path = REPOSITORY
    pins: Any = field(default_factory=read_pins)
    events: list[str] = field(default_factory=list)
    together: tuple[str, ...] = ()
    broken: str = ""
    meet: threading.Barrier = field(default_factory=lambda: threading.Barrier(2))

    def _make(self, image: Image, source: str | None) -> float:
        self.events.append(f"begin {image.tag}")
        if image.tag in self.together:
            self.meet.wait(timeout=20)
        if image.tag == self.broken:
            raise UserError([Problem(key="", problem="it does not build")], exit_code=3)
        self.events.append(f"end {image.tag}")
        return 1.0


@pytest.fixture(autouse=True)
def two_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_build, "_SLOTS", 2)


@pytest.fixture
def wheels(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lists of wheels that were fetched."""
    fetched: list[str] = []

    def fill(wheels: WheelList, root: Path, on_wheel: Any) -> Path:
        fetched.append(wheels.name)
        return root

    monkeypatch.setattr(wheelhouse, "fill", fill)
    return fetched


def test_each_begins_when_what_it_needs_is_there(wheels: list[str]) -> None:
    builds = Recorded()
    assert builds.all(STALE) == dict.fromkeys((one.tag for one in STALE), 1.0)
    assert sorted(wheels) == ["large", "small"]
    for one in STALE:
        if one.parent is not None:
            assert builds.events.index(f"end {one.parent}") < builds.events.index(f"begin {one.tag}")


def test_what_does_not_need_each_other_is_built_side_by_side(wheels: list[str]) -> None:
    assert len(Recorded(together=("small-packages", "large-packages")).all(STALE)) == len(STALE)


def test_what_a_failure_leaves_undone(wheels: list[str]) -> None:
    builds = Recorded(broken="base")
    with pytest.raises(UserError, match="it does not build"):
        builds.all(STALE)
    assert builds.events == ["begin base"]


def test_wheels_that_do_not_come_are_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(wheels: WheelList, root: Path, on_wheel: Any) -> Path:
        raise UserError([Problem(key="", problem=f"no wheels for {wheels.name}")], exit_code=3)

    monkeypatch.setattr(wheelhouse, "fill", fill)
    builds = Recorded()
    with pytest.raises(UserError, match="no wheels for"):
        builds.all(STALE)
    assert not [event for event in builds.events if "packages" in event]


@dataclass(frozen=True, kw_only=True)
class Recording(NoDocker):
    """Notes each command, and what lies in the folder that a container is given."""

    commands: list[tuple[str, ...]] = field(default_factory=list)
    given: dict[str, str] = field(default_factory=dict)
    breaks: str = ""

    def run(self, *arguments: str, **options: Any) -> Completed:
        self.commands.append(arguments)
        for mount in (word for word in arguments if word.endswith(":/mnt:ro")):
            folder = Path(mount.removesuffix(":/mnt:ro"))
            files = [path for path in folder.rglob("*") if path.is_file()]
            self.given.update({str(path.relative_to(folder)): path.read_text() for path in files})
        if arguments[0] == self.breaks:
            raise UserError([Problem(key="", problem=f"{self.breaks} fails")], exit_code=3)
        return Completed(command=arguments, returncode=0, stdout="", stderr="")

    def capture(self, *arguments: str, **options: Any) -> Completed:
        self.commands.append(arguments)
        return super().capture(*arguments, **options)


def packages_of(repository: Path, docker: Docker) -> tuple[_Builds, Image]:
    for path, text in (("a/install", "true"), ("a/slim", "x"), (".wheelhouse/list/one.whl", "wheel")):
        (repository / path).parent.mkdir(parents=True, exist_ok=True)
        (repository / path).write_text(text)
    made = Image(
        tag="warmstack/list-packages:1",
        dockerfile="a/install",
        files=(("slim", "a/slim"),),
        parent="base",
        wheels=WheelList(name="list", locks=()),
    )
    builds = _Builds(docker=docker, hashes={made.tag: "h" * 64}, pins=read_pins(), repository=repository)
    return builds, made


def test_packages_are_installed_in_a_container_that_becomes_the_image(tmp_path: Path) -> None:
    docker = Recording()
    builds, made = packages_of(tmp_path, docker)
    builds._make(made, None)
    run, commit, remove = docker.commands
    name = run[run.index("--name") + 1]
    assert run[run.index("--network") + 1] == "none"
    assert run[-3:] == ("base", "sh", "/mnt/install")
    assert docker.given == {"install": "true", "slim": "x", "wheelhouse/one.whl": "wheel"}
    assert f"LABEL warmstack.inputs={'h' * 64}" in commit
    assert commit[-2:] == (name, made.tag)
    assert remove == ("rm", "--force", name)


@pytest.mark.parametrize("step", ["run", "commit"])
def test_the_container_goes_when_it_fails(tmp_path: Path, step: str) -> None:
    docker = Recording(breaks=step)
    builds, made = packages_of(tmp_path, docker)
    with pytest.raises(UserError, match=f"{step} fails"):
        builds._make(made, None)
    assert docker.commands[-1][:2] == ("rm", "--force")
    assert not list((tmp_path / ".wheelhouse/context").iterdir())
