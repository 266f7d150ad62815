"""Make a random checkpoint answer steadily: the same greedy tokens in whatever batch they are computed.

    python3 make_steady.py FROM TO

Near-ties fall otherwise in other batches, and a random model has many: a roll under load would see another
answer where nothing is wrong. Here the layers compute as before and add nothing (output projections of
zeros), so that each token follows from the one before it; and only tokens that have a spelling are likely.
Sizes, layout and work stay those of the original.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import BinaryIO

SILENT = ("o_proj.weight", "down_proj.weight")
HEAD = "lm_head.weight"
_LENGTH_BYTES = 8
_ZEROS = bytes(1 << 24)


def main() -> None:
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    shutil.copytree(source, target, dirs_exist_ok=True)
    tokenizer = json.loads((target / "tokenizer.json").read_text())
    spelled = len(tokenizer["model"]["vocab"])
    special = {int(token["id"]) for token in tokenizer["added_tokens"]}
    for file in sorted(target.glob("*.safetensors")):
        silence(file, spelled, special)
    print(target)


def silence(file: Path, spelled: int, special: set[int]) -> None:
    """Write zeros in place: into what the layers would add, and the rows of tokens without a spelling."""
    with file.open("r+b") as opened:
        length = int.from_bytes(opened.read(_LENGTH_BYTES), "little")
        header = json.loads(opened.read(length))
        for name, tensor in header.items():
            if name == "__metadata__":
                continue
            begin, end = (_LENGTH_BYTES + length + offset for offset in tensor["data_offsets"])
            row = (end - begin) // tensor["shape"][0]
            if name.endswith(SILENT):
                zero(opened, begin, end)
            elif name == HEAD:
                zero(opened, begin + spelled * row, end)
                for token in special:
                    zero(opened, begin + token * row, begin + (token + 1) * row)


def zero(opened: BinaryIO, begin: int, end: int) -> None:
    opened.seek(begin)
    while begin < end:
        begin += opened.write(_ZEROS[: end - begin])


if __name__ == "__main__":
    main()
