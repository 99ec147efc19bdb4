#!/usr/bin/env bash
# Two trainer ranks and a receiver, three versions.
# usage: run.sh [FOLDER]   of the two programs (default: build/rel/examples)
set -euo pipefail
bin=${1:-build/rel/examples}
room=$(mktemp -d /tmp/dynatrain.XXXXXX) # paths of sockets are short
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$room"' EXIT
chmod 700 "$room"
"$bin/trainer" "unix:$room/session.sock" 0 3 &
"$bin/trainer" "unix:$room/session.sock" 1 3 &
"$bin/receiver" "unix:$room/session.sock" 3
wait
