#!/usr/bin/env bash
# Copy what a session needs of the tree to DIR, unless lanes run from there. DIR keeps its own state folder.
set -euo pipefail
tree=$1; from=$(realpath "$(dirname "$(realpath "$0")")/../..")
[ "$from" != "$(realpath -m "$tree")" ] || exit 0
for pid in "${RESULTS:-/tmp/results}"/*/pid; do
  if [ -e "$pid" ] && kill -0 "$(cat "$pid")" 2>/dev/null; then exit 0; fi
done
mkdir -p "$tree"
for folder in compose scripts tests vllm-image daemon-image gateway-image; do
  # What is the same stays: background work of an earlier call may be reading it.
  diff -rq -x __pycache__ "$from/$folder" "$tree/$folder" >/dev/null 2>&1 && continue
  rm -rf "${tree:?}/$folder"
  cp -r "$from/$folder" "$tree/"
done
