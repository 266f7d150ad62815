"""Checkpoints for tests that need two of one layout."""

from __future__ import annotations

from pathlib import Path

from support.stack import Stack, docker

_CODE = """
import pathlib, shutil, sys
from safetensors.torch import load_file, save_file
for file in pathlib.Path(sys.argv[1]).iterdir():
    shutil.copyfile(file, pathlib.Path("/out") / file.name)
weights = load_file("/out/model.safetensors")
weights["model.norm.weight"] = -weights["model.norm.weight"]
save_file(weights, "/out/model.safetensors", metadata={"format": "pt"})
"""


def write_other_checkpoint(stack: Stack, folder: Path) -> None:
    """The stack's checkpoint as a local folder, one tensor negated: same names and shapes, other content."""
    folder.chmod(0o777)  # the container writes as its own user
    path = stack.service_environment("vllm")["WARMSTACK_MODEL_PATH"]
    image = stack.inspect("vllm")["Config"]["Image"]
    mounts = ("--volume", "warmstack-hub:/hub:ro", "--volume", f"{folder}:/out")
    docker("run", "--rm", *mounts, "--entrypoint", "python", image, "-c", _CODE, path)
