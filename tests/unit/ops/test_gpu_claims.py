"""Two projects on one GPU: what Docker tells of the one, and whether the plan of the other still fits."""

from __future__ import annotations

from typing import Any

import pytest

from warmops.gpu_claims import Claim, claims_of, gpu_problems, shared, uuids_of
from warmops.project import ROOT
from warmplan import GpuFacts, Plan, build_spec, plan_stack, read_environment, read_lock, read_pins
from warmplan.constants import GIB
from warmplan.services import Gpus
from warmplan.spec import Override

FIRST, SECOND = "GPU-aaaa", "GPU-bbbb"
GPUS = tuple(
    GpuFacts(uuid=uuid, total_bytes=80 * GIB, free_bytes=80 * GIB, architecture="sm90")
    for uuid in (FIRST, SECOND)
)


def container(role: str, *, running: bool = True, project: str = "other", **host: Any) -> dict[str, Any]:
    variables = ["WARMSTACK_WEIGHT_BYTES=16381470720"] if role == "weight-cache" else []
    variables += host.pop("variables", [])
    return {
        "Config": {
            "Labels": {"com.docker.compose.project": project, "warmstack.role": role, **planned_label(role)},
            "Env": variables,
        },
        "HostConfig": host,
        "State": {"Running": running},
    }


def planned_label(role: str) -> dict[str, str]:
    """The label of an engine of the plan below."""
    labels = dict(planned(FIRST).engine.labels) if role == "engine" else {}
    return {name: value for name, value in labels.items() if name == "warmstack.gpu-bytes"}


def request(*, names: list[str] | None = None, count: int = 0) -> list[dict[str, Any]]:
    return [{"Driver": "nvidia", "DeviceIDs": names, "Count": count, "Capabilities": [["gpu"]]}]


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ({"DeviceRequests": request(names=[SECOND])}, (SECOND,)),
        ({"DeviceRequests": request(names=["1"])}, (SECOND,)),
        ({"DeviceRequests": request(count=1)}, (FIRST,)),
        ({"DeviceRequests": request(count=-1)}, (FIRST, SECOND)),
        ({"DeviceRequests": request(names=["nvidia.com/gpu=1"])}, (SECOND,)),
        ({"DeviceRequests": request(names=["nvidia.com/gpu=all"])}, (FIRST, SECOND)),
        ({"DeviceRequests": None, "variables": [f"NVIDIA_VISIBLE_DEVICES={SECOND}"]}, (SECOND,)),
        ({"variables": ["NVIDIA_VISIBLE_DEVICES=0,1"]}, (FIRST, SECOND)),
        ({"variables": ["NVIDIA_VISIBLE_DEVICES=void"]}, ()),
        ({}, ()),
    ],
)
def test_the_gpus_of_a_container(host: dict[str, Any], expected: tuple[str, ...]) -> None:
    assert uuids_of(container("weight-cache", **host), GPUS) == expected


def test_a_claim_is_weights_cache_and_what_the_plan_adds() -> None:
    on_second = {"DeviceRequests": request(names=[SECOND])}
    pair = [container("weight-cache", **on_second), container("engine", running=False, **on_second)]
    (claim,) = claims_of(pair, GPUS)
    assert (claim.project, claim.uuids) == ("other", (SECOND,))
    plan = planned(SECOND)
    beside = sum(
        part.bytes
        for part in plan.budget.parts
        if part.key in ("tables", "headroom") or part.key.startswith("surge_")
    )
    assert claim.bytes == plan.budget.total_bytes - beside


def test_weights_that_are_not_held_claim_nothing() -> None:
    assert claims_of([container("weight-cache", running=False, DeviceRequests=request(count=1))], GPUS) == ()


def planned(uuid: str, kv: str = "24") -> Plan:
    folder = ROOT / "compose" / "environments" / "gpu"
    wished = {"gpu.devices": uuid, "engine.kv_cache.gib": kv}
    overrides = [Override(key=key, value=value, origin="test") for key, value in wished.items()]
    spec = build_spec(environment=read_environment(folder), overrides=overrides)
    model = read_lock(folder / "lock.yaml").find(name=spec.model.name, revision=spec.model.revision)
    return plan_stack(spec=spec, pins=read_pins(ROOT / "compose" / "pins.yaml"), model=model)


def test_two_that_do_not_fit_one_gpu_are_refused_with_both_named() -> None:
    claim = Claim(project="other", uuids=(FIRST,), bytes=45 * GIB)
    (problem,) = gpu_problems(planned(FIRST), [claim], GPUS)
    assert problem.key == "gpu.devices"
    assert f"GPU {FIRST} belongs to other (45.00 GiB) already" in problem.problem
    assert "has 80.00 GiB" in problem.problem
    assert "make down-all PROJECT=other" in (problem.hint or "")


def test_the_same_two_on_different_gpus_are_fine() -> None:
    claim = Claim(project="other", uuids=(FIRST,), bytes=45 * GIB)
    assert gpu_problems(planned(SECOND), [claim], GPUS) == []


def test_two_that_fit_one_gpu_are_allowed_and_known() -> None:
    claim = Claim(project="other", uuids=(FIRST,), bytes=20 * GIB)
    plan = planned(FIRST)
    assert gpu_problems(plan, [claim], GPUS) == []
    assert [others for _, others in shared(plan.weight_cache.gpus, [claim], GPUS)] == [(claim,)]


def test_without_uuids_the_first_gpus_are_meant() -> None:
    claim = Claim(project="other", uuids=(FIRST,), bytes=GIB)
    assert [gpu.uuid for gpu, _ in shared(Gpus(count=1, devices=()), [claim], GPUS)] == [FIRST]
    assert shared(None, [claim], GPUS) == []
