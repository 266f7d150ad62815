"""What a host adds to an environment, and what it leaves alone."""

import pytest

from support.wishes import CPU, CUDA
from warmplan import GpuFacts, HostFacts, Override, build_spec
from warmplan.constants import MIB
from warmplan.document import parse_document
from warmplan.environment import Environment
from warmplan.host_wishes import host_overrides

OPEN = "platform: cuda\nmodel: {name: Org/Model}\n"


def gpu(uuid: str, mib: int, architecture: str = "sm90") -> GpuFacts:
    return GpuFacts(uuid=uuid, total_bytes=mib * MIB, free_bytes=0, architecture=architecture)


# nvidia-smi's memory.total of an H200 and an H100.
LARGE, SMALLER = gpu("GPU-a", 143771), gpu("GPU-b", 81559)
OTHER = gpu("GPU-c", 24564, "sm89")


def added(text: str, *gpus: GpuFacts, **given: str) -> dict[str, str]:
    environment = Environment(name="try", document=parse_document(text, file="try/environment.yaml"))
    overrides = [
        Override(key=key.replace("__", "."), value=v, origin="make line") for key, v in given.items()
    ]
    host = HostFacts(cores=2, memory_bytes=1, gpus=gpus)
    found = host_overrides(environment=environment, overrides=overrides, host=host)
    if text == OPEN and gpus:
        build_spec(environment=environment, overrides=[*overrides, *found])
    return {override.key: override.value for override in found}


@pytest.mark.parametrize(
    ("text", "gpus", "expected"),
    [
        (OPEN, (LARGE,), {"gpu.memory_gib": "140.40", "gpu.architecture": "sm90"}),
        (OPEN, (LARGE, SMALLER), {"gpu.memory_gib": "140.40", "gpu.architecture": "sm90"}),
        (
            OPEN + "parallel: {tensor: 2}\n",
            (LARGE, SMALLER),
            {"gpu.memory_gib": "79.64", "gpu.architecture": "sm90"},
        ),
        (OPEN + "parallel: {tensor: 2}\n", (LARGE, OTHER), {"gpu.memory_gib": "23.98"}),
        (
            OPEN + "gpu: {devices: [GPU-c]}\n",
            (LARGE, OTHER),
            {"gpu.memory_gib": "23.98", "gpu.architecture": "sm89"},
        ),
        (CUDA, (LARGE,), {"gpu.architecture": "sm90"}),
        (CUDA.replace("80}", "80, architecture: any}"), (LARGE,), {}),
        (OPEN, (), {}),
        (CPU, (LARGE,), {}),
    ],
)
def test_what_is_left_open_is_filled_in(
    text: str, gpus: tuple[GpuFacts, ...], expected: dict[str, str]
) -> None:
    assert added(text, *gpus) == expected


def test_the_command_line_wins() -> None:
    assert added(OPEN, LARGE, gpu__memory_gib="40", gpu__architecture="sm80") == {}
