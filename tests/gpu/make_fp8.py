"""Write a bf16 checkpoint as fp8, in the layout that vLLM's `quant_method: fp8` reads.

    python3 make_fp8.py FROM TO [--tensor]

Blocks of 128 by 128 with `weight_scale_inv`, as Qwen's own fp8 checkpoints have them; `--tensor` writes one
`weight_scale` for each matrix. Embeddings, norms and the output matrix stay as they are.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

BLOCK = 128
LARGEST = torch.finfo(torch.float8_e4m3fn).max


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--tensor", action="store_true")
    arguments = parser.parse_args()
    source, target = arguments.source, arguments.target
    target.mkdir(parents=True, exist_ok=True)
    weight_map, total = {}, 0
    for file in sorted(source.glob("*.safetensors")):
        written: dict[str, torch.Tensor] = {}
        for name, tensor in load_file(file).items():
            written.update(quantise(name, tensor, whole=arguments.tensor))
        save_file(written, target / file.name, metadata={"format": "pt"})
        weight_map.update(dict.fromkeys(written, file.name))
        total += sum(tensor.nbytes for tensor in written.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (target / "model.safetensors.index.json").write_text(json.dumps(index))
    for path in source.iterdir():
        if path.suffix != ".safetensors" and path.name not in ("model.safetensors.index.json", "config.json"):
            shutil.copy2(path, target)
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic"}
    if not arguments.tensor:
        config["quantization_config"]["weight_block_size"] = [BLOCK, BLOCK]
    (target / "config.json").write_text(json.dumps(config, indent=2))
    print(f"{target}: {total / 1e9:.2f} GB")


def quantise(name: str, tensor: torch.Tensor, *, whole: bool) -> dict[str, torch.Tensor]:
    """A layer's matrix with its scale; anything else as it is."""
    if not name.endswith("_proj.weight"):
        return {name: tensor}
    if whole:
        scale = tensor.float().abs().max() / LARGEST
        return {
            name: (tensor.float() / scale).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn),
            name.replace("weight", "weight_scale"): scale.reshape(()).to(torch.float32),
        }
    rows, columns = tensor.shape
    high, wide = -(-rows // BLOCK), -(-columns // BLOCK)
    padded = torch.zeros(high * BLOCK, wide * BLOCK)
    padded[:rows, :columns] = tensor.float()
    blocks = padded.reshape(high, BLOCK, wide, BLOCK)
    scales = blocks.abs().amax(dim=(1, 3)).clamp(min=1e-12) / LARGEST
    values = (blocks / scales[:, None, :, None]).clamp(-LARGEST, LARGEST).reshape(padded.shape)
    return {
        name: values[:rows, :columns].to(torch.float8_e4m3fn).contiguous(),
        f"{name}_scale_inv": scales.to(torch.float32).contiguous(),
    }


if __name__ == "__main__":
    main()
