#!/usr/bin/env bash
# Builds a preset and runs its tests.  usage: test.sh PRESET [LABELS]
# Tests of label `model` run only where `make model` has put the model; those of
# label `noTSAN` (they start processes, which the thread sanitizer cannot see)
# are left out there.  The last lines are ctest's.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:?usage: test.sh PRESET [LABELS]}
labels=${2:-}
without=""
run=()

cmake --preset "$preset" >/dev/null
cmake --build --preset "$preset" -j "${JOBS:-$(nproc)}"
if [ ! -s "$(scripts/model.sh --path)/model.safetensors" ]; then
  without=model
fi
case $preset in
  asan)
    export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:${ASAN_OPTIONS:-}
    export UBSAN_OPTIONS=print_stacktrace=1:${UBSAN_OPTIONS:-} ;;
  tsan)
    without=${without:+$without|}noTSAN
    export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:${TSAN_OPTIONS:-} ;;
esac
# With more random bits than that the kernel may put something where these
# compilers' sanitizers want their shadow; who is not root cannot read how many.
case $preset in
  asan | tsan)
    bits=$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null) || bits=32
    if [ "$bits" -gt 28 ] && setarch -R true 2>/dev/null; then
      run=(setarch -R)
    elif [ "$bits" -gt 28 ]; then
      echo "test: setarch -R is not permitted here: if programs end at once or" \
        "hang, set vm.mmap_rnd_bits to 28" >&2
    fi ;;
esac
"${run[@]}" ctest --preset "$preset" -j "${TEST_JOBS:-2}" --no-label-summary \
  ${labels:+-L "$labels"} ${without:+-LE "^($without)\$"}
