"""The parts of a session on the GPU host that judge or write: from text and data alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from gpu import relay, session
from gpu.collect import collect, read_steps, why_not
from gpu.collect_tables import bench_tables, load_tables, nursery_lines
from gpu.extra import Extra, extra_services
from gpu.figures import Cost, cost_picture
from gpu.gpus import ProcessMemory, mib_by_gpu, parse_gpus, parse_processes
from gpu.host import changes_of, device_nodes, images, override, routes_of, services
from gpu.lane import forked
from gpu.make_steady import silence
from gpu.memory import compare, log_facts, overhead
from gpu.session import LANES, STEPS, TRIED, WITHOUT, gone_without, line_of, make_lane, make_parser
from gpu.steps_load import without_requests
from gpu.steps_starts import _settled, seconds_left
from warmops.evidence import Mark
from warmops.project import ROOT

MIB, GIB = 1024**2, 1024**3
SMI = """<nvidia_smi_log><driver_version>580.159.04</driver_version>
<gpu id="1"><product_name>NVIDIA H200</product_name><uuid>GPU-a</uuid><minor_number>3</minor_number>
<fb_memory_usage><total>143771 MiB</total><reserved>1 MiB</reserved><used>500 MiB</used></fb_memory_usage>
</gpu></nvidia_smi_log>"""


def test_gpus_and_processes_are_read() -> None:
    (gpu,) = parse_gpus(SMI)
    assert (gpu.uuid, gpu.minor, gpu.total_mib, gpu.used_mib) == ("GPU-a", 3, 143771, 500)
    found = parse_processes("GPU-a, 17, 610\nGPU-b, 17, 600\nGPU-a, 18, [N/A]\n\n")
    assert found == (
        ProcessMemory(uuid="GPU-a", pid=17, mib=610),
        ProcessMemory(uuid="GPU-b", pid=17, mib=600),
    )
    assert mib_by_gpu(found, [17, 99]) == {"GPU-a": 610, "GPU-b": 600}


def test_a_size_that_is_not_told_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"N/A"):
        parse_gpus(SMI.replace("500 MiB", "N/A"))


PARTS = {
    "weights": 16_000 * MIB,
    "tables": 10 * MIB,
    "weight_cache_context": 600 * MIB,
    "engine_context": 600 * MIB,
    "graphs": 700 * MIB,
    "activations": 1_200 * MIB,
    "kv_cache": 24_576 * MIB,
    "headroom": 512 * MIB,
}


def test_the_plan_against_measured_memory() -> None:
    rows = compare(PARTS, weight_cache_mib=16_600, engine_mib=28_000)
    assert [(row.what, row.ok) for row in rows] == [("weight cache", True), ("engine", False), ("sum", True)]
    assert rows[1].share == pytest.approx((27_076 - 28_000) / 28_000)


def test_a_second_engine_counts_as_planned_like_the_first() -> None:
    rows = compare(PARTS, weight_cache_mib=16_610, engine_mib=27_076, surge_mib=27_076)
    assert [row.what for row in rows] == ["weight cache", "engine", "second engine", "sum"]
    assert all(row.share == 0 for row in rows)


def test_nothing_measured_is_not_within_the_limit() -> None:
    assert not any(row.ok for row in compare(PARTS, weight_cache_mib=0, engine_mib=0))


def test_what_keeping_costs() -> None:
    cost = overhead(weight_cache_mib=16_246, weights_bytes=15_636 * MIB)
    assert (cost["overhead_bytes"], cost["overhead_share"]) == (610 * MIB, pytest.approx(0.03901, abs=1e-5))


def test_numbers_of_the_engine_log() -> None:
    lines = [
        "(EngineCore pid=9) [model_runner.py:428] Model loading took 0.0 GiB memory and 1.399290 seconds",
        "(EngineCore pid=9) INFO [model_runner.py:1163] Graph capturing finished in 7 secs, took 0.70 GiB",
        "(EngineCore pid=9) INFO [kv_cache_utils.py:1147] GPU KV cache size: 174,752 tokens, Maximum",
    ]
    assert log_facts(lines) == {
        "load_gib": 0.0,
        "load_seconds": 1.39929,
        "graphs_gib": 0.70,
        "graph_seconds": 7.0,
        "kv_tokens": 174752.0,
    }


CONFIG: dict[str, Any] = {
    "services": {
        "vllm": {
            "image": "engine",
            "command": ["/model", "--revision=a", "--load-format=ipc_cache", "--port=8000"],
            "environment": {"A": "1"},
            "volumes": [
                {"type": "volume", "source": "sockets", "target": "/run/warmstack"},
                {"type": "bind", "source": "/m", "target": "/model"},
            ],
            "ipc": "service:weight-cache",
            "depends_on": {"weight-cache": {}},
        },
        "weight-cache": {"shm_size": "7"},
    },
    "volumes": {"sockets": {"name": "p_sockets"}},
}


def test_one_more_engine_joins_the_weight_cache_and_differs_as_told() -> None:
    extra = Extra(
        name="other",
        arguments=("--enforce-eager",),
        replaced={"--revision=": "--revision=b"},
        environment={"B": "2"},
        mounts=(("/other", "/model"),),
    )
    made = extra_services(CONFIG, "cache-id", [extra])
    service = made["services"]["other"]
    assert service["command"] == [
        "/model",
        "--revision=b",
        "--load-format=ipc_cache",
        "--port=8000",
        "--enforce-eager",
    ]
    assert service["environment"] == {"A": "1", "B": "2"}
    assert [volume["source"] for volume in service["volumes"]] == ["sockets", "/other"]
    assert (service["ipc"], service["network_mode"]) == ("container:cache-id", "none")
    assert "depends_on" not in service
    assert made["volumes"] == {"sockets": {"external": True, "name": "p_sockets"}}


def test_an_engine_that_maps_nothing_reads_from_disk_alone() -> None:
    made = extra_services(CONFIG, "x", [Extra(name="stock", maps=False, entrypoint=("vllm", "serve"))])
    service = made["services"]["stock"]
    assert service["command"] == ["/model", "--revision=a", "--port=8000"]
    assert "ipc" not in service
    assert (service["shm_size"], service["entrypoint"]) == ("7", ["vllm", "serve"])


def test_the_nodes_of_one_gpu(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "sda"):
        (tmp_path / name).touch()
    (tmp_path / "nvidia-caps").mkdir()
    assert [Path(node).name for node in device_nodes({1}, tmp_path)] == ["nvidia-uvm", "nvidia1", "nvidiactl"]
    assert len(device_nodes(None, tmp_path)) == 4


def test_an_empty_image_starts_what_its_dockerfile_starts() -> None:
    entries = []
    for dockerfiles in images().values():
        changes = changes_of(*(ROOT / one for one in dockerfiles))
        entry = next(c for c in changes if c.startswith("ENTRYPOINT")).removeprefix("ENTRYPOINT")
        entries += json.loads(entry)
        assert "USER 10001:10001" in changes
    assert entries == ["warmstack-engine", "warmstack-supervisor", "warmstack-gateway"]


def test_every_step_of_a_lane_exists() -> None:
    for lane in LANES.values():
        assert set(lane["steps"].split()) <= set(STEPS)


def test_a_lane_comes_after_lanes_that_exist() -> None:
    for name, lane in LANES.items():
        assert set(lane.get("after", ())) <= LANES.keys() - {name}


def test_no_two_lanes_share_a_port_unless_they_share_a_stack() -> None:
    ports = [lane["port"] for lane in LANES.values() if "like" not in lane]
    assert len(ports) == len(set(ports))


def test_a_lane_whose_first_up_failed_goes_on_without_a_nursery(tmp_path: Path) -> None:
    assert TRIED in make_lane("bench", tmp_path, cpu=False).settings
    gone_without(tmp_path, "g-eight").touch()
    assert TRIED not in make_lane("bench", tmp_path, cpu=False).settings
    assert WITHOUT in make_lane("bench", tmp_path, cpu=False).settings
    assert TRIED in make_lane("roll", tmp_path, cpu=True).settings


def test_a_lane_that_waits_is_beside_nobody(tmp_path: Path) -> None:
    for name in ("eight", "roll", "bench"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pid").touch()
    (tmp_path / "bench" / "waiting").touch()
    assert session.other_lanes(make_lane("eight", tmp_path, cpu=True)) == ["roll"]


def test_each_engine_has_a_network_that_the_relay_leads_to() -> None:
    pids = {"network": 10, "network-vllm": 20, "network-surge": 30}
    routes = [relay.read_route(text) for text in routes_of(pids, 8081)]
    assert [(r.source, r.address, r.port, r.target, r.inside) for r in routes] == [
        (0, "127.0.0.1", 8081, 10, 8080),
        (10, "127.0.0.2", 8000, 20, 8000),
        (10, "127.0.0.3", 8000, 30, 8000),
    ]


def test_the_override_says_only_where_things_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu.host.device_nodes", lambda minors: ["/dev/nvidia1"])
    (gpu,) = parse_gpus(SMI)
    made = override(Path("/opt/site"), "p", [gpu], nodes=True)["services"]
    assert list(made) == services()
    assert [one["network_mode"] for one in made.values()] == [
        "container:p-network",
        "container:p-network",
        "container:p-network-vllm",
        "container:p-network-surge",
    ]
    assert made["vllm"]["devices"] == made["vllm-surge"]["devices"] == ["/dev/nvidia1"]
    assert "devices" not in made["gateway"]
    assert not any("command" in one or "image" in one for one in made.values())


def test_who_listens_stands_in_the_kernels_table() -> None:
    table = [
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when",
        "   0: 00000000:1F40 00000000:0000 0A 00000000:00000000 00:00000000",
        "   1: 0100007F:1F90 0100007F:C0DE 01 00000000:00000000 00:00000000",
    ]
    assert relay.listens(table, 8000)
    assert not relay.listens(table, 8080)  # a connection is no listener
    assert not relay.listens([], 8000)


def test_a_steady_checkpoint_adds_nothing_and_spells_what_it_says(tmp_path: Path) -> None:
    tensors = {"lm_head.weight": [4, 2], "layers.0.mlp.down_proj.weight": [2, 2], "norm.weight": [2]}
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    size = 0
    for name, shape in tensors.items():
        length = 2
        for side in shape:
            length *= side
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [size, size + length]}
        size += length
    head = json.dumps(header).encode()
    file = tmp_path / "m.safetensors"
    file.write_bytes(len(head).to_bytes(8, "little") + head + b"x" * size)
    silence(file, 3, {1})
    data = file.read_bytes()[8 + len(head) :]
    assert data == b"xxxx" + bytes(4) + b"xxxx" + bytes(4) + bytes(8) + b"xxxx"


def mark(event: str, **fields: Any) -> Mark:
    return Mark(event=event, t=1.0, fields=fields)


def test_a_nursery_has_settled_when_it_learned_from_the_engine_that_serves() -> None:
    born = [mark("nursery", state="ready"), mark("serve", nursery=True)]
    assert forked(born)
    assert not _settled(born)
    assert _settled([*born, mark("nursery", state="learned")])
    assert not _settled([*born, mark("nursery", state="learned"), mark("serve", nursery=True)])
    refused = [mark("nursery", state="off", sentence="after the import of a CUDA is initialised")]
    assert _settled([*refused, mark("serve", nursery=False)])
    assert not _settled([mark("nursery", state="gone"), mark("serve", nursery=False)])  # it is made anew
    assert _settled([mark("serve", nursery=False)])  # none is wanted


def test_the_last_seconds_of_a_session_are_for_its_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPU_SESSION_END", raising=False)
    assert seconds_left(900.0) == 900.0
    monkeypatch.setenv("GPU_SESSION_END", "100")
    assert seconds_left(900.0) == 1.0


SERIES = [
    {"title": "stock", "seconds": [60.0, 58.0], "median_seconds": 59.0, "of_first": 1.0},
    {"title": "ours", "seconds": [20.0, 21.0], "median_seconds": 20.5, "of_first": 0.3475},
]
COUNTS = {"sent": 90, "answered": 88, "failed": 0, "cut": 0, "error event": 2}


def test_tables_of_a_comparison_a_load_and_a_nursery() -> None:
    told = "\n".join(bench_tables([step("bench", "bench", bench={"series": SERIES, "page_cache": "warm"})]))
    assert "| ours | 20.5 | 0.35 | 20.0, 21.0 |" in told
    assert "Beside it ran nothing." in told
    spread = {"count": 8, "p50": 0.1, "p99": 0.2, "max": 0.3}
    load = step(
        "roll",
        "load-roll",
        event="roll",
        counts=COUNTS,
        next_first_token_seconds=0.4,
        first_token={"before": spread, "during": None},
        phases=[{"name": "event", "begin": 10.0, "seconds": 100.0}],
    )
    told = "\n".join(load_tables([load]))
    assert "| roll | 90 | 88 | 0 | 0 | 2 | 0.40 |  |" in told
    assert "| roll | before | 8 | 0.10 | 0.20 | 0.30 |" in told
    assert "| roll | event | 10.0 | 100.0 |" in told
    said = [{"state": "ready", "seconds": 30.0}]
    facts = step("eight", "nursery", said=said, forked=True, list={"learned": 9, "unfit": ["a.b"]})
    assert "| eight | yes | 9 | a.b | 30.00 |  |" in "\n".join(nursery_lines([facts]))
    assert bench_tables([step("a", "up")]) + load_tables([step("a", "up")]) + nursery_lines([]) == []


def test_a_kept_report_has_no_single_requests() -> None:
    assert without_requests({"runs": [{"requests": [1], "counts": {}}]}) == {"runs": [{"counts": {}}]}
    assert without_requests({}) == {}


@pytest.mark.parametrize("cpu", [[], ["--cpu"]])
def test_steps_are_named_behind_the_lane(cpu: list[str]) -> None:
    read = make_parser().parse_args(["--results", "r", "lane", *cpu, "small", "up", "memory"])
    assert (read.name, read.steps, read.cpu) == ("small", ["up", "memory"], bool(cpu))


def step(lane: str, name: str, **facts: Any) -> dict[str, Any]:
    common = {"step": name, "lane": lane, "began": f"2026-01-01T00:00:{len(name):02}Z", "ok": True}
    return {**common, "step_seconds": 1.0, "other_lanes": [], **facts}


def test_a_line_says_what_came_of_a_step() -> None:
    row = {"what": "engine", "planned_mib": 100, "measured_mib": 98, "off_percent": 2.04}
    line = line_of(step("eight", "memory", ok=False, rows=[row], log={"graphs_gib": 0.7}))
    assert line == "NO eight/memory  1.0 s  engine 100/98 +2.0%  graphs_gib 0.7"


def test_results_become_files_whose_figures_are_theirs(tmp_path: Path) -> None:
    results, target = tmp_path / "results", tmp_path / "h200-2026-01-01"
    cost = {"weights_bytes": 15 * GIB, "overhead_bytes": 610 * MIB}
    row = {
        "what": "engine",
        "rank": 0,
        "planned_mib": 1,
        "measured_mib": 2000,
        "off_percent": -50.0,
        "ok": False,
    }
    steps = [
        step(
            "eight",
            "memory",
            ok=False,
            overhead=[cost],
            rows=[row],
            plan={"kv_cache": GIB},
            log={"graphs_gib": 0.5},
        ),
        step("eight", "restart", seconds={"first token": 59.4}, outcome="hit", log={"load_seconds": 1.4}),
        step("timing", "disk-dropped", ready_seconds=78.6, log={"load_seconds": 9.71}),
    ]
    for one in steps:
        (results / one["lane"]).mkdir(parents=True, exist_ok=True)
        (results / one["lane"] / f"{one['step']}.json").write_text(json.dumps(one))
    (results / "eight" / "vllm.log").write_text("nothing\n(EngineCore pid=1) Mapped 436 tensors from\n")
    (results / "host.txt").write_text(
        "Linux 6.18\n0, GPU-a, NVIDIA H200, 580.1, 143771 MiB\n2026-01-01T10:00:00Z\n"
    )
    collect(results, target)
    text = (target / "README.md").read_text()
    assert "| eight | restart | yes | hit | 59.4 | 1.40 |  |" in text
    assert "| eight | memory | 0 | engine | 1 | 2000 | -50.0 % |" in text
    assert "| eight | memory | 2000 | 1024 | 512 | 464 |" in text
    assert "- eight memory: engine -50.0 %" in text
    assert (target / "eight-evidence.txt").read_text().splitlines()[1:] == [
        "(EngineCore pid=1) Mapped 436 tensors from"
    ]
    picture = (target / "cost.svg").read_text()
    ElementTree.fromstring(picture)
    assert "610 MiB to keep them (4.0%)" in picture
    assert "9.71 s" in picture
    assert "1.40 s" in picture
    assert "NVIDIA H200 · vLLM 0.33.0 · 2026-01-01" in picture
    assert [facts["step"] for facts in read_steps(results)] == ["memory", "restart", "disk-dropped"]


def test_a_picture_without_times_shows_memory_alone() -> None:
    cost = Cost(
        model="a < b",
        weights_bytes=GIB,
        overhead_bytes=GIB // 2,
        disk_seconds=None,
        warm_disk_seconds=None,
        mapped_seconds=None,
    )
    picture = cost_picture([cost], note="n")
    assert "Seconds" not in picture
    assert "a &lt; b" in picture
    ElementTree.fromstring(picture)


def test_a_step_that_failed_is_accounted_for() -> None:
    findings = [{"name": "open files", "found": "+9 files", "ok": False}]
    assert why_not(step("a", "b", not_as_expected=findings)) == "open files: +9 files"
    assert why_not(step("a", "b", error="it broke")) == "it broke"
    assert why_not(step("a", "b")) == "see the JSON file"


def test_a_lever_that_did_not_work_is_left_out_of_what_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[tuple[str, ...]] = []
    monkeypatch.setattr(
        "gpu.steps_starts.up_with", lambda *settings: lambda _: tried.append(settings) or {"ok": True}
    )
    lane = make_lane("levers", tmp_path, cpu=True)
    lane.folder.mkdir()
    both = STEPS["both"]
    (lane.folder / "aot-restart.json").write_text('{"ok": false}')
    assert both(lane)["levers"] == [session.FEW_SIZES]
    (lane.folder / "aot-restart.json").write_text('{"ok": true}')
    assert both(lane)["levers"] == [session.FEW_SIZES, session.AOT]
    assert [words[-1] for words in tried] == ["engine.max_restarts=1"] * 2
