#!/usr/bin/env bash
# A command that may fail for reasons which pass: a mirror that does not answer,
# a lock that somebody holds.  usage: again.sh COMMAND...
# Three times at most, half a minute apart; the last failure is the answer.
set -uo pipefail
for left in 2 1 0; do
  status=0
  "$@" || status=$?
  if [ "$status" -eq 0 ] || [ "$left" -eq 0 ]; then
    exit "$status"
  fi
  echo "again in 30 s, it failed with $status: $*" >&2
  sleep 30
done
