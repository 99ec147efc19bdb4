#!/usr/bin/env bash
# Unit tests of the `test` preset under valgrind's memcheck, as many at a time as
# there are cores, within a time box: what does not fit is named.
# usage: valgrind.sh [SECONDS [NAME-PART]]
set -euo pipefail
cd "$(dirname "$0")/.."
export box=${1:-360}
export logs=build/valgrind
export DYT_TEST_INSTRUMENTED=1 # fewer rounds; no measuring of memory and time
# Programs that use kernels beyond what valgrind knows are told not to.
export DYNATRAIN_ISA=${DYNATRAIN_ISA:-avx2}

# One program: a line "STATUS NAME" into $logs/results, its output beside it.
one() {
  local test=$1 name left status=0
  name=$(basename "$test")
  left=$((box - ($(date +%s) - begun)))
  if [ "$left" -le 5 ]; then
    echo "late $name" >>"$logs/results"
    return
  fi
  # Children that a test forks and kills leak by intent: only the parent's leaks
  # count, so they are read from the log and not from an exit status.
  timeout "$left" valgrind --quiet --error-exitcode=99 --leak-check=full \
    --errors-for-leak-kinds=none --show-leak-kinds=definite,indirect \
    --child-silent-after-fork=yes --log-file="$logs/$name.txt" \
    "$test" >"$logs/$name.log" 2>&1 || status=$?
  if [ "$status" = 0 ] && grep -q 'lost in loss record' "$logs/$name.txt"; then
    status=98
  fi
  case $status in
    0) echo "clean $name" ;;
    77) echo "skipped $name" ;;
    124) echo "late $name" ;;
    *) echo "failed $name" ;;
  esac >>"$logs/results"
}
export -f one

rm -rf "$logs"
mkdir -p "$logs"
touch "$logs/results"
begun=$(date +%s)
export begun
# shellcheck disable=SC2016 # the child expands it
printf '%s\0' build/test/tests/test.unit.*"${2:-}"* |
  xargs -0 -n 1 -P "$(nproc)" bash -c 'one "$1"' one

count() { grep -c "^$1 " "$logs/results" || true; }
while read -r name; do
  tail -20 "$logs/$name.log"
  cat "$logs/$name.txt"
  echo "valgrind: $name failed" >&2
done < <(sed -n 's/^failed //p' "$logs/results")
sed -n "s/^late \(.*\)/valgrind: \1 did not fit into $box s/p" "$logs/results"
echo "valgrind: $(count clean) of $(wc -l <"$logs/results") unit test" \
  "programs clean, $(count skipped) skipped, $(count late) late," \
  "$(count failed) failed, in $(($(date +%s) - begun)) s"
[ "$(count failed)" = 0 ] && [ "$(count clean)" -gt 0 ]
