#!/usr/bin/env bash
# What only a GPU can say.  Without a device: one line, and exit 0.
#
# With one, today: the simulator's tests, and those of label `gpu`, of which
# there are none yet; docs/gpu.md says what is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! compgen -G '/dev/nvidia[0-9]*' >/dev/null; then
  echo "skipped: no device"
  exit 0
fi
cmake --preset test >/dev/null
cmake --build --preset test -j "${JOBS:-$(nproc)}"
ctest --preset test --no-tests=ignore -L '^(gpu|gpusim)$'
