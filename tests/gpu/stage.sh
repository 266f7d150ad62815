#!/usr/bin/env bash
# On a prepared GPU host: run lanes side by side, for at most so many seconds; results to OUT_DIR, a table last.
#
#   stage.sh OUT_DIR SECONDS LANE…      a lane that outlives this call goes on; the next call waits for it
#   stage.sh OUT_DIR SECONDS wait       starts nothing
#   stage.sh OUT_DIR SECONDS stop       starts nothing; lanes end after the step that they are at
#
# Variables: RESULTS (/tmp/results), CPU=1 to rehearse with the cpu environment.
set -u
out=$(realpath "$1"); limit=$2; shift 2
tree=${TREE:-/srv/warmstack}
"$(dirname "$(realpath "$0")")/sync.sh" "$tree"
cd "$tree"
results=${RESULTS:-/tmp/results}
mkdir -p "$results" "$out"
export PATH=/opt/dk/bin:$PATH PYTHONPATH=compose:scripts:tests NO_COLOR=1 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
python=${PYTHON:-python3}
until=$((SECONDS + limit))
for lane in "$@"; do
  [ "$lane" != wait ] || continue
  if [ "$lane" = stop ]; then
    for pid in "$results"/*/pid; do [ ! -e "$pid" ] || touch "${pid%pid}stop"; done
    continue
  fi
  name=${lane%%:*}; steps=${lane#"$name"}; steps=${steps#:}
  [ -e "$results/$name/pid" ] && kill -0 "$(cat "$results/$name/pid")" 2>/dev/null && continue
  rm -f "$results/$name/stop"
  # shellcheck disable=SC2086
  setsid nohup "$python" -m gpu.session --results "$results" lane ${CPU:+--cpu} "$name" ${steps//,/ } \
    >>"$results/$name.out" 2>&1 </dev/null &
  mkdir -p "$results/$name"; echo $! >"$results/$name/pid"
done
running() { for pid in "$results"/*/pid; do [ -e "$pid" ] && kill -0 "$(cat "$pid")" 2>/dev/null && return 0; done; return 1; }
while running && [ $SECONDS -lt $until ]; do sleep 1; done
{ uname -sr; nproc; date -u +%FT%TZ; nvidia-smi --query-gpu=index,uuid,name,driver_version,memory.total --format=csv,noheader
  docker version --format '{{.Server.Version}}'; docker compose version --short; "$python" --version
  PYTHONPATH=/opt/site "$python" -c 'import torch; print("torch", torch.__version__)'
  cat "$results/commit"; } >"$results/host.txt" 2>&1
tar -C "$results" -czf "$out/results.tar.gz" . 2>/dev/null
for file in "$results"/*.out; do echo "== ${file##*/}"; tail -n 3 "$file"; done
running && echo "== still running: $(cd "$results" && ls -d ./*/pid)"
"$python" -m gpu.session --results "$results" table
exit 0
