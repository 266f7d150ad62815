"""Whether an engine may use a weight cache; asking the ranks; the status server and the probe."""

import io
import json
import os
import pickle
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import warmstack_probe
from fakes.engine import FakeEngine
from support.engine_samples import make_model, make_status
from warmstack_engine.settings import Settings, read_settings
from warmstack_engine.weight_cache import Held, Miss, NotYet, check_files, judge_status, wait_for_cache
from warmstack_shared.checkpoint import files_stamp, read_digest
from warmstack_shared.errors import Failure
from warmstack_supervisor.holding import Holding, NoAnswerError, ask_ranks
from warmstack_supervisor.serving import UnixStatusServer
from warmstack_supervisor.states import State

ENVIRONMENT = {
    "WARMSTACK_IDENTITY": "a" * 64,
    "WARMSTACK_MODEL": "Org/Name",
    "WARMSTACK_MODEL_DIGEST": "b" * 64,
    "WARMSTACK_MODEL_PATH": "/model",
    "WARMSTACK_WAIT_SECONDS": "0",
    "WARMSTACK_ON_MISS": "refuse",
    "WARMSTACK_HANG_SECONDS": "60",
    "WARMSTACK_MAX_RESTARTS": "3",
}


def settings(**changes: str) -> Settings:
    return read_settings(ENVIRONMENT | changes, ["/model", "--port", "8123"])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"WARMSTACK_IDENTITY": ""}, "WARMSTACK_IDENTITY: is not set"),
        ({"WARMSTACK_ON_MISS": "maybe"}, "WARMSTACK_ON_MISS: 'maybe' is none of refuse, disk"),
        ({"WARMSTACK_HANG_SECONDS": "-1"}, "WARMSTACK_HANG_SECONDS: -1 is below 0"),
        ({"WARMSTACK_WAIT_SECONDS": "soon"}, "WARMSTACK_WAIT_SECONDS: 'soon' is not a number"),
    ],
)
def test_wrong_settings(changes: dict[str, str], sentence: str) -> None:
    with pytest.raises(Failure) as caught:
        settings(**changes)
    assert caught.value.sentence == sentence


def test_the_port_is_vllms_own() -> None:
    assert settings().port == 8123
    assert read_settings(ENVIRONMENT, ["/m", "--port=9"]).port == 9
    assert read_settings(ENVIRONMENT, ["/m"]).port == 8000


def shown(**changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(make_status().to_json())
    return fields | changes


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"state": "loading"}, NotYet(why="the weight cache is loading")),
        (
            {"state": "waiting", "reason": "no room"},
            NotYet(why="the weight cache is waiting: no room"),
        ),
        (
            # Another identity is a miss at once, whatever the state.
            {"identity": "c" * 64, "state": "loading", "model": "Org/Other"},
            Miss(
                reason="mismatch",
                sentence="the weight cache holds Org/Other (identity cccccccccccccccc), "
                "this engine needs Org/Name (identity aaaaaaaaaaaaaaaa)",
            ),
        ),
    ],
)
def test_judge_status(changes: dict[str, Any], verdict: NotYet | Miss) -> None:
    assert judge_status(settings(), shown(**changes)) == verdict


def test_held_for_this_identity_is_usable() -> None:
    assert judge_status(settings(), shown()) == shown()


def test_files(tmp_path: Path) -> None:
    """Case 11: a folder that was changed while its weights are cached is a miss that says so."""
    folder = make_model(tmp_path / "m")
    digest = read_digest(folder)
    mine = settings(WARMSTACK_MODEL_PATH=str(folder), WARMSTACK_MODEL_DIGEST=digest)
    held = shown(files=files_stamp(folder), model_digest=digest)
    assert check_files(mine, held) is None
    os.utime(folder / "config.json", ns=(1, 1))
    assert check_files(mine, held) is None, "touched, the same content"
    (folder / "config.json").write_text('{"retrained": true}')
    miss = check_files(mine, held)
    assert miss is not None
    assert miss.reason == "mismatch"
    assert "the model folder was changed while its weights are cached" in miss.sentence


def test_content_that_the_plan_the_folder_and_the_weight_cache_do_not_share(tmp_path: Path) -> None:
    """Case 10: each of the three must name the same content."""
    folder = make_model(tmp_path / "m")
    digest, other = read_digest(folder), "c" * 64
    mine = settings(WARMSTACK_MODEL_PATH=str(folder), WARMSTACK_MODEL_DIGEST=digest)
    planned_otherwise = settings(WARMSTACK_MODEL_PATH=str(folder), WARMSTACK_MODEL_DIGEST=other)
    assert check_files(mine, shown(files="older", model_digest=digest)) is None
    for wish, held in ((mine, other), (planned_otherwise, digest), (planned_otherwise, other)):
        miss = check_files(wish, shown(files="older", model_digest=held))
        assert miss is not None
        assert miss.reason == "mismatch"


def test_weights_that_are_held_are_taken_only_for_an_unchanged_folder(tmp_path: Path) -> None:
    """Case 11: where an engine waits for the weight cache."""
    folder, path = make_model(tmp_path / "m"), str(tmp_path / "s.sock")
    digest = read_digest(folder)
    status = make_status(files=files_stamp(folder), model_digest=digest)
    places = {"WARMSTACK_SUPERVISOR_SOCKET": path, "WARMSTACK_MODEL_PATH": str(folder)}
    mine = settings(**places, WARMSTACK_MODEL_DIGEST=digest)
    with UnixStatusServer(path, lambda: status) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            assert isinstance(wait_for_cache(mine), Held)
            (folder / "config.json").write_text('{"retrained": true}')
            found = wait_for_cache(mine)
        finally:
            server.shutdown()
            thread.join()
    assert isinstance(found, Miss)
    assert (found.reason, "was changed" in found.sentence) == ("mismatch", True)


def test_no_supervisor_is_unavailable(tmp_path: Path) -> None:
    found = wait_for_cache(settings(WARMSTACK_SUPERVISOR_SOCKET=str(tmp_path / "none.sock")))
    assert isinstance(found, Miss)
    assert found.reason == "unavailable"
    assert "the supervisor does not answer" in found.sentence


# -- a rank that speaks vLLM's protocol
# -------------------------------------------------------------------------


@contextmanager
def rank(path: Path, answer: Callable[[Any], bytes]) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(path))
        server.listen()
        thread = threading.Thread(target=_serve_one, args=(server, answer))
        thread.start()
        try:
            yield
        finally:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as last:
                last.connect(str(path))  # ends the thread if nobody asked
            thread.join()


def _serve_one(server: socket.socket, answer: Callable[[Any], bytes]) -> None:
    connection, _ = server.accept()
    with connection:
        head = connection.recv(8)
        if len(head) == 8:
            connection.sendall(answer(pickle.loads(connection.recv(struct.unpack("!Q", head)[0]))))


def framed(obj: Any) -> bytes:
    data = pickle.dumps(obj)
    return struct.pack("!Q", len(data)) + data


def test_ranks_say_what_they_hold_and_who_they_are(tmp_path: Path) -> None:
    seen: list[Any] = []

    def answer(request: Any) -> bytes:
        seen.append(request)
        return framed({"status": "ok", "memory_bytes": 100})

    left = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    left.bind(str(tmp_path / "dead.sock"))
    left.close()  # a file nobody listens on
    with rank(tmp_path / "a.sock", answer), rank(tmp_path / "b.sock", answer):
        assert ask_ranks(tmp_path, 2) == Holding(bytes=200, pids=(os.getpid(), os.getpid()))
    assert seen == [{"cmd": "get_memory"}] * 2


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (framed({"status": "error", "message": "x"}), "a rank answered"),
        (framed(io.StringIO), "a rank answered with _io.StringIO"),  # nothing but plain values is unpickled
        (struct.pack("!Q", 2**40), "an answer of"),
        (b"", "closed the connection"),
    ],
)
def test_wrong_answers_of_a_rank(tmp_path: Path, answer: bytes, words: str) -> None:
    with rank(tmp_path / "a.sock", lambda _: answer), pytest.raises(NoAnswerError, match=words):
        ask_ranks(tmp_path, 1)


def test_a_missing_rank_is_no_answer(tmp_path: Path) -> None:
    with (
        rank(tmp_path / "a.sock", lambda _: framed({"status": "ok", "memory_bytes": 1})),
        pytest.raises(NoAnswerError, match="1 of 2 ranks"),
    ):
        ask_ranks(tmp_path, 2)


# -- the status server and the probe
# ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "state", "code", "words"),
    [
        ("health", "held", 0, "269060552 bytes of Org/Name are held"),
        ("health", "loading", 1, "the weight cache is loading"),
        ("status", "loading", 0, '"state": "loading"'),
    ],
)
def test_probe(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    what: str,
    state: str,
    code: int,
    words: str,
) -> None:
    path = str(tmp_path / "s.sock")
    monkeypatch.setattr(warmstack_probe, "SUPERVISOR_SOCKET", path)
    monkeypatch.setattr("warmstack_supervisor.serving.time.monotonic", lambda: 101.0)
    with UnixStatusServer(path, lambda: make_status(state=State(state))) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        assert warmstack_probe.main([what]) == code
        thread.join()
    assert words in capsys.readouterr().out


def test_probe_says_when_nobody_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(warmstack_probe, "SUPERVISOR_SOCKET", str(tmp_path / "none"))
    assert warmstack_probe.main(["health"]) == 1
    assert "the supervisor does not answer" in capsys.readouterr().out
    for words in ([], ["nonsense"], ["health", "more"], ["ask"]):
        assert warmstack_probe.main(words) == 2


def test_probe_asks_the_engine_beside_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    body = b'{"messages": [], "max_tokens": 3}'
    with FakeEngine() as engine:
        monkeypatch.setattr(warmstack_probe, "ENGINE_PORT", engine.port)
        assert warmstack_probe.main(["engine"]) == 0
        for path, code, words in (("/v1/chat/completions", 0, "The capital of"), ("/v2", 1, "")):
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(body)))
            assert warmstack_probe.main(["ask", path]) == code
            assert words in capsys.readouterr().out
    assert engine.received[0].body == body
    assert warmstack_probe.main(["engine"]) == 1
    assert "the engine does not answer" in capsys.readouterr().out


def test_a_second_supervisor_is_refused_and_a_stale_socket_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "s.sock")
    with (
        UnixStatusServer(path, make_status),
        pytest.raises(Failure, match="another one serves"),
    ):
        UnixStatusServer(path, make_status)
    UnixStatusServer(path, make_status).server_close()
