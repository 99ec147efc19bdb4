#!/usr/bin/env bash
# The plugin inside vLLM's CPU build.
# usage: vllm_check.sh [--ci] [--install-only | --python | --bench OPTIONS |
#                      --adapters PARTS | OPTIONS]
#
# OPTIONS are those of tests/vllm/check.py: --full for all of it, with all of
# tests/vllm/adapters.sh, of which --adapters runs parts alone.  With --ci the
# environment is built within a time, room and memory are looked at first, and
# what cannot be had is skipped by name; what does run must pass.
#
# Needs `make model`.  vLLM lies in the virtual environment that its benchmark
# has; the one of this clone, in build/vllm-check, sees it and adds our wheel.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
model=$(scripts/model.sh --path)
cache=$(dirname "$(dirname "$model")")
base=$cache/venv/bench-vllm
venv=$root/build/vllm-check/venv
install_seconds=900 # of vLLM and what it wants, 5 GB to fetch: 106 s measured
bare_seconds=300    # until vLLM alone answers at TP 3, which takes a minute
check_seconds=1800  # of what --ci runs, which takes ten minutes on two cores
# What talks talks on this machine only, whatever its name resolves to, and past
# a proxy that is there for what gets installed.
export GLOO_SOCKET_IFNAME=lo VLLM_HOST_IP=127.0.0.1 HF_HUB_OFFLINE=1
export no_proxy=127.0.0.1,localhost${no_proxy:+,$no_proxy}
export NO_PROXY=$no_proxy
# Paths of sockets are short.
export TMPDIR=${TMPDIR:-/tmp}
[ "${#TMPDIR}" -lt 40 ] || TMPDIR=/tmp

# It cannot be had here: no failure.
skip() {
  echo "vllm-check: skipped: $1"
  exit 0
}

gigabytes() { # PATH: free where it would be
  df --output=avail -BG "$1" | tail -1 | tr -dc 0-9
}

memory() { # gigabytes that may be used
  local free limit most=max
  free=$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo)
  for limit in memory.max memory/memory.limit_in_bytes; do # of either version
    if [ -r "/sys/fs/cgroup/$limit" ]; then
      read -r most <"/sys/fs/cgroup/$limit"
    fi
  done
  if [ "$most" != max ] && [ $((most >> 30)) -lt "$free" ]; then
    free=$((most >> 30))
  fi
  echo "$free"
}

room() { # with --ci: would it fit?
  local free
  free=$(memory)
  [ "$(uname -m)" = x86_64 ] || skip "vLLM's CPU build is taken for x86_64"
  grep -q avx2 /proc/cpuinfo || skip "vLLM's CPU build wants AVX2"
  [ "$free" -ge 14 ] || skip "$free GB of memory are free, it takes 12"
  [ "$(gigabytes "$TMPDIR")" -ge 4 ] || skip "less than 4 GB are free in $TMPDIR"
  [ "$(gigabytes /dev/shm)" -ge 1 ] || skip "less than 1 GB is free in /dev/shm"
  [ -e "$base/complete" ] || [ "$(gigabytes "$cache")" -ge 12 ] ||
    skip "less than 12 GB are free for the environment"
}

install_vllm() {
  [ ! -e "$base/complete" ] || return 0
  echo "vllm-check: installing vLLM's CPU build into $base (minutes)" >&2
  rm -rf "$base"
  if ! python3 -m venv "$base" ||
      ! timeout -k 10 "$install_seconds" \
      scripts/again.sh bench/opponents/vllm.sh "$base"; then
    rm -rf "$base"
    skip "vLLM's CPU build does not install within $install_seconds s"
  fi
  touch "$base/complete"
}

install_ours() {
  local site pip
  [ -x "$venv/bin/python" ] || python3 -m venv "$venv" ||
    skip "no virtual environment can be made"
  site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  "$base/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
    >"$site/bench-vllm.pth"
  pip=("$venv/bin/python" -m pip --disable-pip-version-check --quiet)
  scripts/again.sh "${pip[@]}" install "scikit-build-core>=0.10" ninja ||
    skip "what builds the wheel does not install"
  "${pip[@]}" install --no-deps --no-build-isolation --force-reinstall "$root"
  # Not where libcurl and jansson are missing, which CMake says.
  if grep -q example_engine_http build/wheel/build.ninja; then
    cmake --build build/wheel --target example_engine_http >/dev/null
  fi
  # Somebody stops at points of an update in a library of a test build only.
  cmake --preset test >/dev/null
  cmake --build build/test --target dynatrain >/dev/null
}

# vLLM alone, for --ci: where that does not run, a failure would say nothing.
bare() {
  local log=$root/build/vllm-check/bare.log
  timeout -k 30 "$bare_seconds" "$base/bin/python" bare.py "$model" \
    >"$log" 2>&1 ||
    skip "vLLM alone does not run here within $bare_seconds s: $(tail -1 "$log")"
}

out_of_memory() { # processes that the machine has killed for that so far
  awk '/^oom_kill / { print $2 }' /proc/vmstat
}

# With --ci: every wait inside has its own end, and is a failure; this one is for
# machines that are too slow for the check.
within() { # COMMAND...
  local status=0 killed
  if [ -z "$ci" ]; then
    "$@"
    return
  fi
  killed=$(out_of_memory)
  timeout -k 60 $((check_seconds - SECONDS)) "$@" || status=$?
  if [ "$status" -eq 124 ] || [ "$status" -eq 137 ]; then
    skip "not through within $check_seconds s"
  fi
  if [ "$status" -ne 0 ] && [ "$(out_of_memory)" != "$killed" ]; then
    skip "the machine ran out of memory meanwhile, and killed somebody"
  fi
  return "$status"
}

ci=
if [ "${1:-}" = --ci ]; then
  ci=yes
  shift
fi
if [ "${1:-}" = --python ]; then # where it is or would be
  echo "$venv/bin/python"
  exit 0
fi
mkdir -p "$cache/venv" build/vllm-check
exec 7>build/vllm-check/lock # two runs of this clone would share its environment
flock ${ci:+-w "$check_seconds"} 7 || skip "another one runs in this clone"
if [ -n "$ci" ]; then
  exec 8>"$cache/venv/vllm-check.lock"
  flock -w "$check_seconds" 8 || skip "another one runs on this machine"
  room
fi
exec 9>"$cache/venv/vllm.lock"
flock 9 # two clones on one machine install it once
install_vllm
flock -u 9
exec 9>&-
install_ours
if [ "${1:-}" = --install-only ]; then
  exit 0
fi
if [ ! -s "$model/model.safetensors" ]; then
  [ -z "$ci" ] || skip "no model"
  echo "vllm-check: no model: run make model" >&2
  exit 1
fi
cd tests/vllm # not where a folder is named like the package
if [ "${1:-}" = --bench ]; then
  shift
  exec "$venv/bin/python" "$root/bench/plugin/plugin_vllm.py" "$model" "$@"
fi
adapters=(./adapters.sh "$venv/bin/python" "$model")
if [ "${1:-}" = --adapters ]; then
  shift
  exec "${adapters[@]}" "$@"
fi
case " $* " in
  *" --part "*) parts=() ;;
  *" --full "*) parts=(python wheel trl examples) ;;
  *) parts=(${ci:+shards examples}) ;;
esac
check=("$venv/bin/python" check.py "$model"
  --hooks "$root/build/test/lib/libdynatrain.so")
engine=$root/build/wheel/examples/engine_http.so
if [ -e "$engine" ]; then
  check+=(--program "$venv/bin/dynatrain" --engine "$engine")
else
  echo "vllm-check: left out: dynatrain run (no libcurl, no jansson)"
fi
if [ -n "$ci" ]; then
  bare
fi
SECONDS=0
within "${check[@]}" "$@"
[ "${#parts[@]}" -eq 0 ] || within "${adapters[@]}" "${parts[@]}"
