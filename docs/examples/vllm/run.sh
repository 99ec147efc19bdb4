#!/usr/bin/env bash
# Runs the example in the environment of `make vllm-check`; says so where that
# is not there.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
model=$("$here/../../../scripts/model.sh" --path)
python=${DYNATRAIN_PYTHON:-$("$here/../../../scripts/vllm_check.sh" --python)}
if [ ! -x "$python" ]; then
  echo "skipped: scripts/vllm_check.sh --install-only makes the environment"
  exit 77
fi
cd "$here"
exec "$python" example.py "$model"
