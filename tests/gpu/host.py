"""Make a GPU host without registry or bridge network able to run the generated `gpu` file.

In: a host with Docker Engine running (no bridge), the NVIDIA driver's device nodes, vLLM importable from
`--site`, and a Caddy binary. Out: images without content under the tags the generated file names, our files
where those images look for them, and an override file that lends containers the host's file system, device
nodes and network. The generated file itself stays as it is: the override holds only what such a host lacks.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import yaml

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
OWNER = 10001


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--site", type=Path, default=Path("/opt/site"), help="folder with vLLM and its packages"
    )
    parser.add_argument("--caddy", type=Path, required=True, help="Caddy binary")
    parser.add_argument("--override", type=Path, required=True, help="where to write the override file")
    arguments = parser.parse_args()
    install_commands(arguments.caddy)
    for tag, entry_point in images().items():
        import_empty_image(tag, entry_point)
    arguments.override.write_text(yaml.safe_dump(override(arguments.site), sort_keys=False), encoding="utf-8")


def images() -> dict[str, list[str]]:
    """Tag → entry point, as the Dockerfiles of the project set it."""
    pins = yaml.safe_load((ROOT / "compose" / "pins.yaml").read_text(encoding="utf-8"))
    vllm = pins["vllm"]["cuda"]["version"]
    return {
        f"warmstack/vllm:{vllm}-cuda": ["warmstack-engine"],
        f"warmstack/weight-cache:{vllm}-cuda": ["warmstack-supervisor"],
        f"warmstack/gateway:{pins['gateway']['version']}": ["warmstack-gateway"],
    }


def install_commands(caddy: Path) -> None:
    """What the images of the project hold, on the host: `/usr` and `/opt` are what containers see."""
    ours = Path("/opt/warmstack")
    shutil.rmtree(ours, ignore_errors=True)
    ours.mkdir(parents=True)
    for folder in ("vllm-image", "daemon-image", "gateway-image"):
        for path in (ROOT / folder).iterdir():
            if (path / "__init__.py").is_file():
                shutil.copytree(path, ours / path.name)
            elif path.suffix == ".py":
                shutil.copy2(path, ours)
        install_folder(ROOT / folder / "bin")
    Path("/opt/caddy").mkdir(exist_ok=True)
    shutil.copy2(ROOT / "gateway-image" / "Caddyfile", "/opt/caddy/Caddyfile")
    install(caddy, "caddy")
    add_user()
    command = Path("/usr/local/bin/vllm")
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
    target = Path("/usr/local/bin") / name
    shutil.copyfile(path, target)
    target.chmod(0o755)


def import_empty_image(tag: str, entry_point: list[str]) -> None:
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
    listed = ", ".join(f'"{word}"' for word in entry_point)
    changes = (
        "--change",
        f"ENTRYPOINT [{listed}]",
        "--change",
        f"USER {OWNER}:{OWNER}",
        "--change",
        "WORKDIR /tmp",
    )
    subprocess.run(
        ["docker", "import", *changes, "-", tag], input=archive.getvalue(), check=True, capture_output=True
    )


def override(site: Path) -> dict[str, object]:
    """The override file: what a host without registry, bridge and NVIDIA runtime lacks."""
    lent = [{"type": "bind", "source": path, "target": path, "read_only": True} for path in LENT]
    common = {
        "network_mode": "host",
        "networks": _Reset(None),
        "volumes": lent,
        "extra_hosts": dict.fromkeys(("weight-cache", "vllm", "vllm-surge", "gateway"), "127.0.0.1"),
        "environment": {"PATH": os.environ["PATH"]},
    }
    libraries = {"LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}
    gpu = {
        **common,
        "deploy": _Reset(None),
        "devices": sorted(str(path) for path in Path("/dev").glob("nvidia*") if not path.is_dir()),
        "environment": {
            **common["environment"],  # type: ignore[dict-item]
            **libraries,
            "PYTHONPATH": f"/opt/warmstack:{site}",
            "PYTHONUNBUFFERED": "1",
            "VLLM_USE_FLASHINFER_SAMPLER": "0",  # FlashInfer is not on this host
        },
    }
    gateway = {
        **common,
        "ports": _Reset([]),
        "environment": {
            **common["environment"],  # type: ignore[dict-item]
            "PYTHONPATH": f"/opt/warmstack:{site}",  # vLLM brings aiohttp
            "WARMSTACK_CADDYFILE": "/opt/caddy/Caddyfile",
            "WARMSTACK_METRICS": "127.0.0.1:9180",
        },
    }
    return {"services": {"weight-cache": gpu, "vllm": gpu, "gateway": gateway}}


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
