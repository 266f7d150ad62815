"""What travels over vLLM's weight cache socket for one tensor: a place in shared memory instead of a CUDA
handle.

In: a tensor of the daemon's model. Out: the same tensor in the engine.
Refuses to know: how the segment was filled.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from vllm.model_executor.model_loader.weight_cache import protocol

from warmstack_shm.segment import Place, Segment, SegmentError, map_place


@dataclass
class ShmTensorEntry(protocol.TensorEntry):
    """vLLM's TensorEntry whose `ipc_args` is a `Place`. Tensors outside the segment (empty ones) travel by
    value.
    """

    segment: ClassVar[Segment | None] = None  # set in the daemon, where there is one segment for the process

    @classmethod
    def from_tensor(cls, tensor: torch.Tensor, kind: str) -> "ShmTensorEntry":
        place = cls.segment.place_of(tensor.detach()) if cls.segment else None
        if place is None:
            return cls(kind=kind, cpu_tensor=tensor.detach().clone())
        return cls(kind=kind, ipc_args=place)

    def rebuild(self, device_index: int) -> torch.Tensor:
        if self.ipc_args is None:
            by_value: Any = self.cpu_tensor
            assert isinstance(by_value, torch.Tensor)
            return by_value
        try:
            return map_place(Place(*self.ipc_args))
        except SegmentError as error:
            raise protocol.WeightCacheUnavailableError(str(error)) from error

    @property
    def mapped_bytes(self) -> int:
        """Bytes that this tensor shares with the daemon; 0 when it travelled by value."""
        if self.ipc_args is None:
            return 0
        place = Place(*self.ipc_args)
        return torch.Size(place.shape).numel() * place.dtype.itemsize
