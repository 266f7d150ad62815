"""The built images: what they were built from, who they run as, and that vLLM's kernels load in them."""

from __future__ import annotations

import json

import pytest

from support.stack import docker, warm
from warmops.image_build import INPUTS_LABEL
from warmops.images import describe_images, hash_inputs
from warmops.pins import read_pins

IMAGES = describe_images("cpu", read_pins())
ENTRY_POINTS = {
    "warmstack/vllm": ["warmstack-engine"],
    "warmstack/weight-cache": ["warmstack-supervisor"],
    "warmstack/gateway": ["warmstack-gateway"],
    "warmstack/open-webui": ["warmstack-webui"],
}
STARTED = [image.tag for image in IMAGES if image.tag.split(":")[0] in ENTRY_POINTS]
VLLM = next(tag for tag in STARTED if tag.startswith("warmstack/vllm:"))
HARDENED = (
    "--read-only",
    "--tmpfs",
    "/tmp:exec",
    "--cap-drop",
    "ALL",
    "--network",
    "none",
    "--entrypoint",
    "sh",
)


def test_a_second_build_builds_nothing() -> None:
    warm("images")
    built = json.loads(warm("images", "--json").stdout)
    assert [one["image"] for one in built] == [image.tag for image in IMAGES]
    assert [one for one in built if one["seconds"] is not None] == []


def test_every_image_carries_the_hash_of_its_inputs() -> None:
    for tag, inputs in hash_inputs(IMAGES).items():
        assert json.loads(docker("image", "inspect", tag))[0]["Config"]["Labels"][INPUTS_LABEL] == inputs, tag


@pytest.mark.parametrize("tag", STARTED)
def test_user_and_entry_point(tag: str) -> None:
    config = json.loads(docker("image", "inspect", tag))[0]["Config"]
    assert config["User"] == "10001:10001"
    assert config["Entrypoint"] == ENTRY_POINTS[tag.split(":")[0]]


@pytest.mark.parametrize(
    ("tag", "folder"),
    [
        (VLLM, "/hub"),
        (VLLM, "/run/warmstack"),
        ("warmstack/open-webui", "/data"),
        ("warmstack/gateway", "/data"),
    ],
)
def test_a_new_volume_belongs_to_the_user(tag: str, folder: str) -> None:
    image = next(one for one in STARTED if one.startswith(tag))
    said = docker(
        "run", "--rm", "-v", folder, *HARDENED, image, "-c", f"touch {folder}/x && stat -c %u:%g {folder}/x"
    )
    assert said.strip() == "10001:10001"


LOAD_KERNELS = """
import importlib.util, pathlib, torch
folder = pathlib.Path(importlib.util.find_spec("vllm").submodule_search_locations[0])
for kernels in sorted(folder.glob("_C.*.so")):
    torch.ops.load_library(str(kernels))
    print(kernels.name)
"""


def test_vllms_kernels_load() -> None:
    """Without a system library they need, vLLM only warns, and fails much later."""
    assert docker("run", "--rm", *HARDENED, VLLM, "-c", f"python -c '{LOAD_KERNELS}'").split()


LIST_UNCOMPILED = """
import importlib.util, pathlib
ours, packages = pathlib.Path("/opt/warmstack"), pathlib.Path("/opt/venv/lib/python3.11/site-packages")
for folder in (ours, packages / "warmstack_shm", packages / "vllm" / "v1"):
    for source in folder.rglob("*.py"):
        if not pathlib.Path(importlib.util.cache_from_source(str(source))).exists():
            print(source)
"""


def test_modules_are_compiled_in_the_image() -> None:
    """The root is read-only: what is not compiled here is compiled again at every start."""
    assert docker("run", "--rm", *HARDENED, VLLM, "-c", f"python -c '{LIST_UNCOMPILED}'") == ""
