"""One file in shared memory that holds a model's tensors, and the mapping of it.

In: a loaded model (the daemon), or a place in a file (the engine). Out: the model's tensors moved into the
file; places `(path, file bytes, offset, dtype, shape)`; tensors mapped from such a place.
Refuses to know: vLLM, sockets, who asks. It deletes no file but the one it made.
"""

import contextlib
import functools
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch

from warmstack_shared.segment_names import SHM_FOLDER, segment_prefix

# A page: every tensor starts on its own, so that a private copy of one (after a stray write) copies no
# neighbour.
ALIGNMENT_BYTES = 4096


class Place(NamedTuple):
    """Where a tensor lies. A plain tuple for pickle: the engine rebuilds it with this same class."""

    path: str
    file_bytes: int
    offset_bytes: int
    dtype: torch.dtype
    shape: tuple[int, ...]


class SegmentError(RuntimeError):
    """The file of a place is not what the daemon said it is."""


class Segment:
    """The daemon's file of weights. Only the daemon maps it writable."""

    def __init__(self, *, path: Path, base: torch.Tensor) -> None:
        self.path = path
        self.bytes = base.nbytes
        self._base = base

    @classmethod
    def of_model(cls, model: torch.nn.Module, socket_path: str, folder: Path = SHM_FOLDER) -> "Segment":
        """Move every tensor of `model` into a new file. Raises OSError (ENOSPC) when the folder is too
        small.
        """
        groups = _tensors_by_storage(model)
        total_bytes = sum(_aligned(same[0].nbytes) for same in groups)
        path = folder / f"{segment_prefix(socket_path)}{os.getpid()}.{secrets.token_hex(4)}"
        _allocate(path, total_bytes)
        base = torch.from_file(str(path), shared=True, size=total_bytes, dtype=torch.uint8)
        offset = 0
        for same in groups:
            offset += _move(same, base, offset)
        return cls(path=path, base=base)

    def place_of(self, tensor: torch.Tensor) -> Place | None:
        """Where `tensor` lies in this file; None when it lies elsewhere or is empty."""
        offset = tensor.data_ptr() - self._base.data_ptr()
        if tensor.numel() == 0 or not 0 <= offset < self.bytes:
            return None
        return Place(str(self.path), self.bytes, offset, tensor.dtype, tuple(tensor.shape))

    def unlink(self) -> None:
        """Give the name back. Engines that mapped the file keep it until they end."""
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()


def map_place(place: Place) -> torch.Tensor:
    """The tensor at `place`, sharing memory with the daemon. Raises `SegmentError` on a file that is not
    ours.
    """
    count = torch.Size(place.shape).numel() * place.dtype.itemsize
    file = _map_file(place.path, place.file_bytes)
    return file[place.offset_bytes : place.offset_bytes + count].view(place.dtype).view(place.shape)


@functools.lru_cache(maxsize=4)
def _map_file(path: str, file_bytes: int) -> torch.Tensor:
    try:
        info = Path(path).stat()
    except FileNotFoundError:
        raise SegmentError(f"the weight cache's file {path} is not there: /dev/shm is not shared") from None
    if info.st_uid != os.getuid() or info.st_size < file_bytes:
        raise SegmentError(f"the weight cache's file {path} has another owner or is cut short")
    # shared=False is MAP_PRIVATE: pages stay shared until written, so a stray write in an engine cannot harm
    # the cache.
    return torch.from_file(path, shared=False, size=file_bytes, dtype=torch.uint8)


def _tensors_by_storage(model: torch.nn.Module) -> list[list[torch.Tensor]]:
    """Tensors of the model, tied ones (same place in memory) together."""
    groups: dict[tuple[int, int], list[torch.Tensor]] = {}
    for tensor in _tensors(model):
        if tensor.numel():
            key = (tensor.untyped_storage().data_ptr(), int(tensor.storage_offset()))
            groups.setdefault(key, []).append(tensor)
    return list(groups.values())


def _tensors(model: torch.nn.Module) -> Iterator[torch.Tensor]:
    yield from model.parameters()
    yield from model.buffers()


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def _allocate(path: Path, size_bytes: int) -> None:
    """Make the file with all its blocks: a full tmpfs says ENOSPC here, and not SIGBUS at the first write."""
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    try:
        os.posix_fallocate(handle, 0, size_bytes)
    except OSError:
        path.unlink()
        raise
    finally:
        os.close(handle)


def _move(same: list[torch.Tensor], base: torch.Tensor, offset_bytes: int) -> int:
    """Copy one group to `offset_bytes` and point its tensors there, which frees the private copy. Returns its
    bytes.
    """
    source = same[0].detach().contiguous()
    target = base[offset_bytes : offset_bytes + source.nbytes].view(source.dtype).view(source.shape)
    target.copy_(source)
    for tensor in same:
        tensor.data = target if tensor.shape == target.shape else target.view(tensor.shape)
    return _aligned(source.nbytes)
