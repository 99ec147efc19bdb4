#!/usr/bin/env bash
# Unit tests of the `test` preset under valgrind's memcheck, within a time box:
# what does not fit is named.  usage: valgrind.sh [SECONDS]
set -euo pipefail
cd "$(dirname "$0")/.."
box=${1:-300}
started=$SECONDS
ran=0
late=0
# Programs that use kernels beyond what valgrind knows are told not to.
export DYNATRAIN_ISA=${DYNATRAIN_ISA:-avx2}

for test in build/test/tests/test.unit.*; do
  left=$((box - (SECONDS - started)))
  if [ "$left" -le 5 ]; then
    late=$((late + 1))
    continue
  fi
  status=0
  timeout "$left" valgrind --quiet --error-exitcode=99 --leak-check=full \
    --errors-for-leak-kinds=definite,indirect --show-leak-kinds=definite,indirect \
    "$test" >build/valgrind.log 2>&1 || status=$?
  case $status in
    0) ran=$((ran + 1)) ;;
    77) ;;
    124) late=$((late + 1)) ;;
    *)
      cat build/valgrind.log
      echo "valgrind: $(basename "$test") failed with status $status" >&2
      exit 1 ;;
  esac
done
echo "valgrind: $ran unit test programs clean, $late did not fit into $box s"
[ "$ran" -gt 0 ]
