#!/usr/bin/env bash
# The quickstart: a tiny model with random weights learns to sort four letters.
# usage: quickstart.sh [options of `dynatrain run`]
set -euo pipefail
cd "$(dirname "$0")/.."
dynatrain=build/rel/bin/dynatrain
model=build/models/tiny

rm -rf "$model" # always from nothing
mkdir -p "$(dirname "$model")"
"$dynatrain" model init --preset tiny --out "$model"
exec "$dynatrain" run configs/quickstart/job.toml "$@"
