#!/usr/bin/env bash
# What only a GPU can say, in under ten minutes: the tests of label gpu, their
# kernels under compute-sanitizer where it is installed, and bench/gpu.
# Without a device: one line, and exit 0.
# usage: gpu_check.sh
#
#   DYT_GPU_BUILD   build folder             (build/gpu)
#   JOBS            compilers at a time      (all cores)
set -euo pipefail
cd "$(dirname "$0")/.."
build=${DYT_GPU_BUILD:-build/gpu}
if ! compgen -G '/dev/nvidia[0-9]*' >/dev/null && [ ! -e /dev/dxg ]; then
  echo "skipped: no device"
  exit 0
fi

# For the GPUs that are here only: the others' code takes minutes.  A GPU that
# the toolkit is too old to know takes the newest PTX, which all of them have.
archs=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null |
  tr -cd '0-9\n' | sort -un | paste -sd ';' -) || archs=
configure() {
  cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
    -DCMAKE_C_FLAGS_RELWITHDEBINFO="-O2 -g" -DDYT_CUDA=on -DDYT_TEST_HOOKS=ON \
    -DDYT_CUDA_ARCHS="$1" >/dev/null
}
for tool in cmake ninja; do
  command -v "$tool" >/dev/null || { echo "gpu_check: there is no $tool: install it"; exit 1; }
done
if [ -z "$archs" ]; then
  configure all
elif ! configure "$archs"; then
  echo "gpu_check: once more, for all architectures that the toolkit knows"
  configure all
fi
cmake --build "$build" --target gpu_check_programs -j "${JOBS:-$(nproc)}"

# All programs look for a device before they begin: 77 says in what state it is.
seen=0
said=$("$build/tests/test.gpu.model" 2>&1) || seen=$?
if [ "$seen" -eq 77 ]; then
  echo "$said"
  exit 0
fi

failed=0
ctest --test-dir "$build" -L '^gpu$' --no-tests=error --output-on-failure || failed=1

# One GPU is enough for what follows.
CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0}
export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES%%,*}

# Tests of kernels by themselves: the others bring driver and processes along.
sanitizer=$(command -v compute-sanitizer || true)
[ -n "$sanitizer" ] || for at in "${CUDA_HOME:-}" /usr/local/cuda; do
  if [ -x "$at/bin/compute-sanitizer" ]; then
    sanitizer=$at/bin/compute-sanitizer
  fi
done
if [ -z "$sanitizer" ]; then
  echo "skipped: compute-sanitizer is not installed"
else
  for tool in memcheck racecheck; do
    for test in copy hash; do
      echo "compute-sanitizer $tool: $test"
      log=$build/$tool.$test.log code=0
      timeout 300 "$sanitizer" --tool "$tool" --error-exitcode 3 \
        "$build/tests/test.gpu.$test" >"$log" 2>&1 || code=$?
      if [ "$code" -ne 0 ] && [ "$code" -ne 124 ] && ! grep -q SUMMARY "$log"; then
        # As in some containers, and on GPUs newer than itself.
        echo "skipped: compute-sanitizer does not work here: $(tail -n 1 "$log")"
      elif [ "$code" -ne 0 ]; then
        tail -n 30 "$log"
        failed=1
      fi
    done
  done
fi

if [ -x "$build/bench/gpu" ]; then
  rm -f "$build/gpu.json"
  "$build/bench/gpu" --json "$build/gpu.json" || failed=1
  echo "figures: $build/gpu.json"
fi
exit $failed
