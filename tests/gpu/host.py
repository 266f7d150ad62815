"""Make a GPU host without registry, bridge network and NVIDIA runtime able to run the generated files.

In: a host with Docker Engine running (no bridge), the NVIDIA driver's device nodes, vLLM importable from
`--site`, and a Caddy binary. Out: images without content under the tags that the generated files name, our
files where those images look for them; for each project an override file that lends its containers the
host's file system and the nodes of its GPUs, and networks of its own: loopback alone, one for each engine
and one for the rest, with a relay that leads from the host to the gateway and from there to the engines.
The generated file itself stays as it is: the override holds only what such a host lacks.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from gpu.gpus import Gpu, read_gpus

ROOT = Path(__file__).resolve().parents[2]
LINKS = {"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64", "sbin": "usr/sbin"}
MOUNT_POINTS = (
    "usr",
    "opt",
    "etc",
    "sys",
    "proc",
    "dev",
    "tmp",
    "run/warmstack",
    "hub",
    "cache",
    "model",
    "data",
)
LENT = ("/usr", "/opt", "/etc", "/sys")
# Each network lends its namespace to these services. The gateway knows an engine by its name: an address of
# its own in the gateway's loopback, from which the relay leads to the engine's network.
NETWORKS = {
    "network": ("weight-cache", "gateway"),
    "network-vllm": ("vllm",),
    "network-surge": ("vllm-surge",),
}
ADDRESSES = {"vllm": "127.0.0.2", "vllm-surge": "127.0.0.3"}
# As in the generated file, whose own entry goes with its network.
MAPPED_LOOPBACK = "ip4-mapped-localhost:::ffff:127.0.0.1"
ENGINE_PORT, GATEWAY_PORT = 8000, 8080
OWNER = 10001
OURS = Path("/opt/warmstack")
COMMANDS = OURS / "bin"
# NVLink multicast must stay off here: a program that uses it can harm GPUs that others share.
NO_MULTICAST = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
    "VLLM_ALLREDUCE_USE_SYMM_MEM": "0",
}
# The only interface there is, for what asks for one by itself.
LOOPBACK = {"NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo", "VLLM_HOST_IP": "127.0.0.1"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    for name, function in (("install", run_install), ("override", run_override), ("network", run_network)):
        command = commands.add_parser(name)
        command.set_defaults(run=function)
        if name == "install":
            command.add_argument("--caddy", type=Path, required=True, help="Caddy binary")
        if name == "override":
            command.add_argument("--out", type=Path, required=True, help="the file to write")
            command.add_argument("--gpus", default="0", help="indices of its GPUs, in order (0,1)")
            command.add_argument("--select", choices=("nodes", "visible"), default="nodes")
            command.add_argument("--plain", action="store_true", help="the network alone: for real images")
            command.add_argument("--no-surge", action="store_true", help="no second engine is in the file")
        if name == "network":
            command.add_argument("--port", type=int, default=8080, help="port of 127.0.0.1 for the gateway")
            command.add_argument("--remove", action="store_true", help="away with it")
            command.add_argument("--image", help="default: the engine's")
        if name != "install":
            command.add_argument("--project", required=True)
        command.add_argument("--site", type=Path, default=Path("/opt/site"), help="folder with vLLM")
    arguments = parser.parse_args()
    arguments.run(arguments)


def run_install(arguments: argparse.Namespace) -> None:
    install_commands(arguments.caddy)
    for tag, dockerfiles in images().items():
        import_empty_image(tag, changes_of(*(ROOT / one for one in dockerfiles)))


def run_override(arguments: argparse.Namespace) -> None:
    if arguments.plain:
        written = {"services": {service: _network(arguments.project, service) for service in services()}}
        written["services"]["gateway"]["ports"] = _Reset([])
    else:
        found = read_gpus()
        used = [found[int(index)] for index in arguments.gpus.split(",")]
        written = override(arguments.site, arguments.project, used, nodes=arguments.select == "nodes")
    if arguments.no_surge:
        del written["services"]["vllm-surge"]
    arguments.out.write_text(yaml.safe_dump(written, sort_keys=False), encoding="utf-8")


def run_network(arguments: argparse.Namespace) -> None:
    if arguments.remove:
        remove_networks(arguments.project)
        return
    image = arguments.image or next(iter(images()))
    pids = make_networks(arguments.project, image, lent=arguments.image is None)
    if pids is None:
        return
    routes = [word for route in routes_of(pids, arguments.port) for word in ("--route", route)]
    with Path(f"/tmp/relay-{arguments.project}.log").open("a") as log:
        subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("relay.py")), *routes],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def make_networks(project: str, image: str, *, lent: bool) -> dict[str, int] | None:
    """Containers that only lend their network namespaces: loopback, and in the gateway's the engines' names.

    Returns the process of each; None when all are there already: their relay lives as long as they do.
    """
    if all(_pid(f"{project}-{name}") for name in NETWORKS):
        return None
    remove_networks(project)
    own = [f"--add-host={service}:127.0.0.1" for service in (*NETWORKS["network"], "gateway-metrics")]
    names = [*own, *(f"--add-host={engine}:{address}" for engine, address in ADDRESSES.items())]
    every = f"--add-host={MAPPED_LOOPBACK}"
    binds = [f"--volume={path}:{path}:ro" for path in LENT] if lent else []
    for name in NETWORKS:
        _docker(
            *("run", "--detach", "--name", f"{project}-{name}", "--network", "none", "--entrypoint", "sleep"),
            *(*(names if name == "network" else ()), every, *binds, image, "infinity"),
        )
    return {name: _pid(f"{project}-{name}") for name in NETWORKS}


def remove_networks(project: str) -> None:
    """Their relay ends with them, and lets go of the host's port."""
    _docker("rm", "--force", *(f"{project}-{name}" for name in NETWORKS), check=False)


def routes_of(pids: Mapping[str, int], port: int) -> list[str]:
    """As `relay.py` reads them: host → gateway, and in the gateway's network → each engine's."""
    front = pids["network"]
    engines = {service: pids[name] for name, (service, *_) in NETWORKS.items() if name != "network"}
    return [
        f"0,127.0.0.1,{port},{front},{GATEWAY_PORT}",
        *(f"{front},{ADDRESSES[name]},{ENGINE_PORT},{pid},{ENGINE_PORT}" for name, pid in engines.items()),
    ]


def images() -> dict[str, tuple[str, ...]]:
    """Tag → the Dockerfiles that make it, in order; the engine's first."""
    pins = yaml.safe_load((ROOT / "compose" / "pins.yaml").read_text(encoding="utf-8"))
    vllm = pins["vllm"]["cuda"]["version"]
    return {
        f"warmstack/vllm:{vllm}-cuda": ("vllm-image/Dockerfile.cuda", "vllm-image/Dockerfile"),
        f"warmstack/weight-cache:{vllm}-cuda": ("vllm-image/Dockerfile.cuda", "daemon-image/Dockerfile"),
        f"warmstack/gateway:{pins['gateway']['version']}": ("gateway-image/Dockerfile",),
    }


def changes_of(*dockerfiles: Path) -> list[str]:
    """Their last ENTRYPOINT and their variables, as `docker import` takes them."""
    text = "".join(path.read_text(encoding="utf-8") for path in dockerfiles)
    variables = re.findall(r"^ENV .*[^\\]$", text, re.MULTILINE)
    entry = re.findall(r"^ENTRYPOINT \[.*\]$", text, re.MULTILINE)
    return [*variables, entry[-1], f"USER {OWNER}:{OWNER}", "WORKDIR /tmp"]


def install_commands(caddy: Path) -> None:
    """What the images of the project hold, on the host: `/usr`, `/opt` and `/etc` are what containers see."""
    shutil.rmtree(OURS, ignore_errors=True)
    COMMANDS.mkdir(parents=True)
    for folder in ("vllm-image", "daemon-image", "gateway-image"):
        for path in (ROOT / folder).iterdir():
            if (path / "__init__.py").is_file():
                shutil.copytree(path, OURS / path.name)
            elif path.suffix == ".py":
                shutil.copy2(path, OURS)
        install_folder(ROOT / folder / "bin")
    Path("/etc/caddy").mkdir(exist_ok=True)
    shutil.copy2(ROOT / "gateway-image" / "Caddyfile", "/etc/caddy/Caddyfile")
    install(caddy, "caddy")
    add_user()
    command = COMMANDS / "vllm"
    command.write_text('#!/bin/sh\nexec python3 -m vllm.entrypoints.cli.main "$@"\n', encoding="utf-8")
    command.chmod(0o755)


def add_user() -> None:
    """The images name user 10001, and PyTorch asks for that name; here `/etc` is the host's."""
    passwd = Path("/etc/passwd")
    line = f"warmstack:x:{OWNER}:{OWNER}::/tmp:/usr/sbin/nologin\n"
    if line not in passwd.read_text(encoding="utf-8"):
        with passwd.open("a", encoding="utf-8") as file:
            file.write(line)


def install_folder(folder: Path) -> None:
    for path in folder.iterdir():
        install(path, path.name)


def install(path: Path, name: str) -> None:
    target = COMMANDS / name
    shutil.copyfile(path, target)
    target.chmod(0o755)


def import_empty_image(tag: str, changes: list[str]) -> None:
    """An image of links and mount points alone; its content is lent by the override."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, target in LINKS.items():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            tar.addfile(link)
        for name in MOUNT_POINTS:
            folder = tarfile.TarInfo(name)
            # Docker gives a tmpfs the mode of the folder it covers.
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name in ("tmp", "cache") else 0o755
            folder.uid = folder.gid = OWNER if name in ("run/warmstack", "hub", "cache", "data") else 0
            tar.addfile(folder)
    options = [word for change in changes for word in ("--change", change)]
    subprocess.run(
        ["docker", "import", *options, "-", tag], input=archive.getvalue(), check=True, capture_output=True
    )


def override(site: Path, project: str, gpus: Sequence[Gpu], *, nodes: bool) -> dict[str, Any]:
    """The override file: what a host without registry, bridge and NVIDIA runtime lacks.

    `nodes`: the containers get the device nodes of these GPUs alone, as NVIDIA's runtime does it; else all
    nodes, and CUDA is told which GPUs to use.
    """
    lent = [{"type": "bind", "source": path, "target": path, "read_only": True} for path in LENT]
    path = {
        "PATH": f"{COMMANDS}:{os.environ['PATH']}",
        "PYTHONPATH": f"/opt/warmstack:{site}",
        "PYTHONUNBUFFERED": "1",
    }
    common = {"volumes": lent, "environment": path}
    visible = {} if nodes else {"CUDA_VISIBLE_DEVICES": ",".join(gpu.uuid for gpu in gpus)}
    environment = {
        **path,
        # NVIDIA's runtime, which is not there, would read it; `up` sees by it whose GPUs these are.
        "NVIDIA_VISIBLE_DEVICES": ",".join(gpu.uuid for gpu in gpus),
        "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", ""),
        "VLLM_USE_FLASHINFER_SAMPLER": "0",  # FlashInfer is not on this host
        **NO_MULTICAST,
        **LOOPBACK,
        **visible,
    }
    gpu = {
        **common,
        "deploy": _Reset(None),
        "devices": device_nodes({one.minor for one in gpus} if nodes else None),
        "environment": environment,
    }
    wanted = {service: {**_network(project, service), **gpu} for service in services()}
    wanted["gateway"] = {**_network(project, "gateway"), **common, "ports": _Reset([])}
    return {"services": wanted}


def device_nodes(minors: set[int] | None, dev: Path = Path("/dev")) -> list[str]:
    """NVIDIA's nodes: those that all GPUs share, and of the numbered ones the wanted (None: all)."""
    found = [path for path in sorted(dev.glob("nvidia*")) if not path.is_dir()]
    numbers = {path: int(path.name[6:]) for path in found if path.name[6:].isdigit()}
    return [str(path) for path in found if path not in numbers or minors is None or numbers[path] in minors]


def services() -> list[str]:
    return [service for services in NETWORKS.values() for service in services]


def _network(project: str, service: str) -> dict[str, Any]:
    name = next(name for name, services in NETWORKS.items() if service in services)
    # Names are those of the container that lends its network.
    lent = {"networks": _Reset(None), "extra_hosts": _Reset(None)}
    return {"network_mode": f"container:{project}-{name}", **lent}


def _pid(name: str) -> int:
    told = _docker("inspect", "--format", "{{.State.Pid}}", name, check=False)
    return int(told.strip() or 0)


def _docker(*arguments: str, check: bool = True) -> str:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise SystemExit(f"docker {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


class _Reset:
    """Compose's `!reset`: takes a key out that the generated file sets."""

    def __init__(self, value: object) -> None:
        self.value = value


def _represent_reset(dumper: yaml.SafeDumper, reset: _Reset) -> yaml.Node:
    node = dumper.represent_data(reset.value)
    node.tag = "!reset"
    return node


yaml.SafeDumper.add_representer(_Reset, _represent_reset)
yaml.SafeDumper.ignore_aliases = lambda self, data: True  # type: ignore[method-assign]

if __name__ == "__main__":
    main()
