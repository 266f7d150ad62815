#!/usr/bin/env bash
# On a prepared GPU host: the generated `gpu` file with an 8B-shape checkpoint, restarts and drills; logs and a table to OUT_DIR.
#
#   session.sh OUT_DIR STEP...      steps: up restart drill-NAME status stop
set -u
out=$(realpath "$1"); shift
cd "$(dirname "$(realpath "$0")")/../.."
export PATH=/opt/dk/bin:$PATH PYTHONPATH=compose:scripts NO_COLOR=1
model=${MODEL:-/tmp/models/eight}
settings=(--set open_webui.enabled=false --set engine.max_model_len=8192 --set "engine.kv_cache.gib=${KV_GIB:-24}" ${SETTINGS:-})
began=$(date +%s)
warm() { timeout "${LIMIT:-240}" python3 -m warmops "$@" </dev/null; }
gpu_memory() { nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader | tr '\n' ' '; nvidia-smi --query-gpu=memory.used --format=csv,noheader; }
note() { echo "$(($(date +%s) - began)) s  $*" | tee -a "$out/table.txt"; }
for step in "$@"; do
  case $step in
    up) warm up --env gpu --project g --model "$model" --port 8080 --override /tmp/override.yaml --no-build "${settings[@]}" >"$out/$step.log" 2>&1 ;;
    restart) warm restart --project g --json >"$out/$step-$(date +%s).json" 2>>"$out/$step.log" ;;
    drill-*) warm drill --project g --drill "${step#drill-}" --json >"$out/$step.json" 2>"$out/$step.log" ;;
    status) warm status --project g >"$out/status.txt" 2>&1 ;;
    stop) docker stop -t 20 $(docker ps -q) >/dev/null ;;
  esac
  note "$step: exit $?  GPU MiB: $(gpu_memory)"
done
docker logs g-vllm-1 >"$out/vllm.log" 2>&1
docker logs g-weight-cache-1 >"$out/weight-cache.log" 2>&1
{ uname -sr; nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader; date -u +%FT%TZ; python3 -c 'import torch; print("torch", torch.__version__)'; } >"$out/host.txt"
