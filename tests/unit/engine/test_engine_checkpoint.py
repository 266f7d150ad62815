"""Model folders and snapshots: the digest that the whole project shares, and what `warmstack-fetch` makes of
it.
"""

import hashlib
import json
import os
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest

from support.engine_samples import make_model, tensors
from warmstack_fetch.cli import main
from warmstack_fetch.hub import Digest
from warmstack_fetch.package import package_name
from warmstack_fetch.snapshots import Origin, manifests, publish, staging
from warmstack_shared.checkpoint import digest_of, files_stamp, read_checkpoint
from warmstack_shared.errors import Failure


def test_digest_is_the_algorithm_of_the_contract(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "m")
    lines = "".join(
        f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n"
        for name in ("config.json", "model.safetensors")
    )
    found = read_checkpoint(folder)
    assert found.digest == hashlib.sha256(lines.encode()).hexdigest()
    assert found.weight_bytes == 20
    assert found.config == {"model_type": "llama"}
    assert sorted(found.files) == ["config.json", "model.safetensors"]


def test_digest_of_is_a_literal() -> None:
    assert digest_of({"b": "22", "a": "11"}) == hashlib.sha256(b"11  a\n22  b\n").hexdigest()


def test_tokenizer_does_not_decide_the_weights_but_one_byte_of_them_does(tmp_path: Path) -> None:
    first = read_checkpoint(make_model(tmp_path / "m")).digest
    (tmp_path / "m" / "tokenizer.json").write_text("other")
    assert read_checkpoint(tmp_path / "m").digest == first
    data = bytearray((tmp_path / "m" / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (tmp_path / "m" / "model.safetensors").write_bytes(data)
    assert read_checkpoint(tmp_path / "m").digest != first


def test_stamp_sees_a_touch_and_the_digest_does_not(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "m")
    stamp, digest = files_stamp(folder), read_checkpoint(folder).digest
    assert files_stamp(folder) == stamp
    os.utime(folder / "model.safetensors", ns=(1, 1))
    assert files_stamp(folder) != stamp
    assert read_checkpoint(folder).digest == digest


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("model.safetensors", None, "has no *.safetensors file"),
        ("config.json", None, "has no config.json"),
        ("config.json", b"{", "is not JSON"),
        ("config.json", b"[]", "is not a JSON object"),
        ("model.safetensors", b"short", "is not a safetensors file"),
        ("model.safetensors", struct.pack("<Q", 2**60) + b"{}", "is not a safetensors file"),
    ],
)
def test_wrong_folders(tmp_path: Path, name: str, content: bytes | None, sentence: str) -> None:
    folder = make_model(tmp_path / "m")
    (folder / name).unlink() if content is None else (folder / name).write_bytes(content)
    with pytest.raises(Failure) as caught:
        read_checkpoint(folder)
    assert sentence in caught.value.sentence
    assert caught.value.exit_code == 2
    assert caught.value.hint


def fetch(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any], str]:
    code = main(list(arguments))
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else {}, err


def test_digest_command_describes_a_local_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_model(tmp_path / "m")
    code, manifest, _ = fetch(capsys, "digest", "--path", str(folder))
    assert code == 0
    assert set(manifest) == {
        *("schema", "model", "revision", "commit", "source", "package"),
        *("digest", "path", "weight_bytes", "files", "config"),
    }
    assert (manifest["source"], manifest["model"], manifest["path"]) == ("local", str(folder), str(folder))
    assert manifest["files"]["config.json"]["bytes"] == 23


def publish_one(hub: Path, weights: bytes = tensors((0, 4))) -> Any:
    with staging(hub / "models" / "Org--Name") as place:
        make_model(place, weights)
        return publish(place, Origin(model="Org/Name", revision="main", source="hub", commit="1" * 40))


def test_publish_is_a_rename_and_is_idempotent(tmp_path: Path) -> None:
    first, again = publish_one(tmp_path), publish_one(tmp_path)
    assert first == again
    names = sorted(path.name for path in (tmp_path / "models" / "Org--Name").iterdir())
    assert names == [".lock", first.digest[:16], f"{first.digest[:16]}.json"]
    assert (Path(first.path) / "model.safetensors").stat().st_mode & 0o777 == 0o644


def test_find_prints_the_newest_or_the_one_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = publish_one(tmp_path)
    new = publish_one(tmp_path, tensors((0, 5)))
    os.utime(Path(old.path + ".json"), ns=(1, 1))
    where = ("find", "--model", "Org/Name", "--hub", str(tmp_path))
    assert fetch(capsys, *where)[1]["digest"] == new.digest
    assert fetch(capsys, *where, "--digest", old.digest[:12])[1]["digest"] == old.digest
    assert fetch(capsys, *where, "--revision", "1" * 40)[1]["digest"] == new.digest
    code, _, err = fetch(capsys, *where, "--revision", "v2")
    assert code == 1
    assert err.startswith("error: no snapshot of Org/Name at revision v2 is on disk\nhint: ")


def test_a_manifest_whose_folder_is_gone_is_not_found(tmp_path: Path) -> None:
    manifest = publish_one(tmp_path)
    Path(manifest.path).rename(tmp_path / "elsewhere")
    assert manifests(tmp_path / "models" / "Org--Name") == []


def test_offline_uses_what_is_on_disk_or_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    get = ("get", "--model", "Org/Name", "--hub", str(tmp_path), "--offline")
    code, _, err = fetch(capsys, *get)
    assert code == 3
    assert "error: Org/Name is not on disk, no package carries it, and no hub answers (offline)" in err
    manifest = publish_one(tmp_path)
    assert fetch(capsys, *get)[1]["digest"] == manifest.digest


def test_package_name_comes_from_the_wheel(tmp_path: Path) -> None:
    wheel = tmp_path / "x.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("a_b-1.2.dist-info/METADATA", "Metadata-Version: 2.1\nName: a-b\nVersion: 1.2\n")
    assert package_name(wheel) == "a-b==1.2"
    with pytest.raises(Failure, match="cannot read the package"):
        package_name(tmp_path / "none.whl")


@pytest.mark.parametrize(
    ("digest", "problem"),
    [
        (Digest(value=hashlib.sha256(b"abc").hexdigest(), is_sha256=True), None),
        (Digest(value="0" * 64, is_sha256=True), "sha256 ba7816bf8f01cfea, the hub says 0000000000000000"),
        (Digest(value="f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f", is_sha256=False), None),
        (Digest(value="0" * 40, is_sha256=False), "git blob f2ba8f84ab5c1bce, the hub says 0000000000000000"),
    ],
)
def test_what_the_hub_names_a_file_by(tmp_path: Path, digest: Digest, problem: str | None) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    assert digest.problem(tmp_path / "file") == problem
