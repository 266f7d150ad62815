"""The docker client's boundary: a fake `docker` on disk, with real processes, streams and exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from warmops.docker import Docker, DockerError


def fake(tmp_path: Path, script: str, *secrets: str) -> Docker:
    path = tmp_path / "docker"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return Docker(binary=str(path), secrets=secrets)


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (("ps", "--filter", "name=a b"), "docker ps --filter 'name=a b'"),
        (("run", "-e", "HF_TOKEN=hf_abc", "x"), "docker run -e 'HF_TOKEN=***' x"),
        (("run", "--env=WEBUI_ADMIN_PASSWORD=x y", "i"), "docker run '--env=WEBUI_ADMIN_PASSWORD=***' i"),
        (("run", "-e", "TOKEN_FILE=/run/secrets/t", "i"), "docker run -e TOKEN_FILE=/run/secrets/t i"),
        (("exec", "c", "curl", "Bearer s3cret"), "docker exec c curl 'Bearer ***'"),
        (("run", "-e", "MODEL=Org/Name", "i"), "docker run -e MODEL=Org/Name i"),
    ],
)
def test_a_command_is_shown_as_it_could_be_pasted_with_secrets_masked(
    arguments: tuple[str, ...], shown: str
) -> None:
    assert Docker(secrets=("s3cret", "")).shown(("docker", *arguments)) == shown


def test_run_echoes_and_passes_output_to_stderr(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    docker = fake(tmp_path, "echo out; echo err >&2")
    docker.run("build", "x")
    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines() == [f"$ {docker.binary} build x", "out", "err"]


def test_quiet_shows_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fake(tmp_path, "echo out").run("x", quiet=True)
    assert capfd.readouterr() == ("", "")


def test_capture_keeps_the_streams_apart_or_merges_them_in_order(tmp_path: Path) -> None:
    docker = fake(tmp_path, "echo 1; echo 2 >&2; echo 3")
    assert (docker.capture("x").stdout, docker.capture("x").stderr) == ("1\n3\n", "2\n")
    assert docker.capture("x", merged=True).stdout == "1\n2\n3\n"


def test_a_failure_carries_the_last_words_and_no_secret(tmp_path: Path) -> None:
    docker = fake(tmp_path, "echo 'pull access denied for s3cret' >&2; exit 125", "s3cret")
    with pytest.raises(DockerError) as caught:
        docker.capture("pull", "s3cret")
    assert caught.value.exit_code == 3
    assert str(caught.value).endswith("ended with exit code 125: pull access denied for ***")
    assert "s3cret" not in str(caught.value)


def test_an_unchecked_failure_comes_back(tmp_path: Path) -> None:
    completed = fake(tmp_path, "echo gone >&2; exit 1").capture("inspect", check=False)
    assert (completed.ok, completed.returncode, completed.stderr) == (False, 1, "gone\n")


def test_no_engine_is_told_from_a_failed_command(tmp_path: Path) -> None:
    words = (
        "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"
    )
    docker = fake(tmp_path, f"echo '{words}' >&2; exit 1")
    assert not docker.answers()
    with pytest.raises(DockerError, match="the Docker engine does not answer"):
        docker.inspect("x")


def test_no_client(tmp_path: Path) -> None:
    docker = Docker(binary=str(tmp_path / "docker"))
    assert not docker.answers()
    with pytest.raises(DockerError, match="was not found"):
        docker.run("ps", quiet=True)


@pytest.mark.parametrize("way", ["run", "capture"])
def test_a_command_that_hangs_is_ended(tmp_path: Path, way: str) -> None:
    docker = fake(tmp_path, "exec sleep 60")
    with pytest.raises(DockerError, match=r"gave no answer in 0\.2 s"):
        getattr(docker, way)("ps", quiet=True, timeout_seconds=0.2)


def test_a_stream_is_ended_when_its_reader_leaves(tmp_path: Path) -> None:
    with fake(tmp_path, "echo first; echo second; exec sleep 60").stream("logs", "--follow", "c") as lines:
        assert [next(lines), next(lines)] == ["first", "second"]


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ('echo \'[{"Id": "a"}]\'', {"Id": "a"}),
        ("echo '[]'; echo 'Error: No such container: x' >&2; exit 1", None),
        ("echo '[]'; echo 'Error response from daemon: get x: no such volume' >&2; exit 1", None),
    ],
)
def test_inspect(tmp_path: Path, script: str, found: dict[str, str] | None) -> None:
    assert fake(tmp_path, script).inspect("x") == found


def test_compose_variables_of_the_shell_do_not_reach_docker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPOSE_PROJECT_NAME", "other")
    monkeypatch.setenv("COMPOSE_FILE", "other.yaml")
    monkeypatch.setenv("DOCKER_CONTEXT", "kept")
    said = fake(tmp_path, "env").capture("version").stdout
    assert "COMPOSE_" not in said
    assert "DOCKER_CONTEXT=kept" in said


def test_compose_names_project_file_and_folder_on_every_command(tmp_path: Path) -> None:
    docker = fake(tmp_path, 'echo "$@"')
    compose = docker.compose(project="p", file=Path("/s/compose.yaml"), project_directory=Path("/s"))
    assert compose.capture("ps", "--all").stdout.split() == [
        *("compose", "--project-name", "p", "--project-directory", "/s", "--file", "/s/compose.yaml"),
        *("ps", "--all"),
    ]


def test_config_hashes(tmp_path: Path) -> None:
    docker = fake(tmp_path, "echo 'vllm abc'; echo 'weight-cache def'")
    compose = docker.compose(project="p", file=Path("c"), project_directory=Path("s"))
    assert compose.config_hashes() == {"vllm": "abc", "weight-cache": "def"}
