#!/usr/bin/env bash
# Unit tests of the `test` preset under valgrind's memcheck, within a time box:
# what does not fit is named.  usage: valgrind.sh [SECONDS]
set -euo pipefail
cd "$(dirname "$0")/.."
box=${1:-300}
started=$SECONDS
ran=0
late=0
export DYT_TEST_INSTRUMENTED=1 # memory and time are not measured there
# Programs that use kernels beyond what valgrind knows are told not to.
export DYNATRAIN_ISA=${DYNATRAIN_ISA:-avx2}

for test in build/test/tests/test.unit.*; do
  left=$((box - (SECONDS - started)))
  if [ "$left" -le 5 ]; then
    late=$((late + 1))
    continue
  fi
  status=0
  # Children that a test forks and kills leak by intent: only the parent's leaks
  # count, so they are read from the log and not from an exit status.
  rm -f build/valgrind.txt
  timeout "$left" valgrind --quiet --error-exitcode=99 --leak-check=full \
    --errors-for-leak-kinds=none --show-leak-kinds=definite,indirect \
    --child-silent-after-fork=yes --log-file=build/valgrind.txt \
    "$test" >build/valgrind.log 2>&1 || status=$?
  if [ "$status" = 0 ] && grep -q 'lost in loss record' build/valgrind.txt; then
    status=98
  fi
  if grep -q 'unhandled .* syscall' build/valgrind.txt 2>/dev/null; then # pidfd_open
    echo "valgrind: $(basename "$test") is left out: valgrind lacks a system call"
    continue
  fi
  case $status in
    0) ran=$((ran + 1)) ;;
    77) ;;
    124) late=$((late + 1)) ;;
    *)
      tail -20 build/valgrind.log
      cat build/valgrind.txt
      echo "valgrind: $(basename "$test") failed with status $status" >&2
      exit 1 ;;
  esac
done
echo "valgrind: $ran unit test programs clean, $late did not fit into $box s"
[ "$ran" -gt 0 ]
