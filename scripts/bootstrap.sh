#!/usr/bin/env bash
# Sees to it that what the build needs is there.  usage: bootstrap.sh [--ci]
#
# Nothing missing: nothing is done.  As root on a system with apt-get, what is
# missing is installed.  Otherwise the one line to type is printed.  Libraries
# outside the system's places are found through DYNATRAIN_PREFIX.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
case ${1:-} in
  '') groups=build ;;
  --ci) groups="build ci" ;;
  *) echo "usage: bootstrap.sh [--ci]" >&2; exit 2 ;;
esac

header_compiles() {
  local flags=() before=""
  if [ -n "${DYNATRAIN_PREFIX:-}" ]; then
    flags=(-I "$DYNATRAIN_PREFIX/include")
  fi
  case $1 in
    cmocka.h) # wants these first
      before=$'#include <setjmp.h>\n#include <stdarg.h>\n#include <stddef.h>\n#include <stdint.h>\n' ;;
    pcre2.h)
      before=$'#define PCRE2_CODE_UNIT_WIDTH 8\n' ;;
  esac
  printf '%s#include <%s>\n' "$before" "$1" |
    "${CXX:-g++}" -std=c++17 -E "${flags[@]}" -x c++ - -o /dev/null 2>/dev/null
}

present() { # PROBE
  case $1 in
    cmd:*) command -v "${1#cmd:}" >/dev/null ;;
    header:*) command -v "${CXX:-g++}" >/dev/null && header_compiles "${1#header:}" ;;
    venv:) python3 -c 'import venv, ensurepip' 2>/dev/null ;;
    fuzzer:)
      command -v clang >/dev/null &&
        printf 'int LLVMFuzzerTestOneInput(const char *p, unsigned long n) { return p && n > 9; }\n' |
        clang -fsanitize=fuzzer -x c - -o /dev/null 2>/dev/null ;;
    *) echo "bootstrap: unknown probe $1" >&2; exit 2 ;;
  esac
}

# Package names (with alternatives) whose probe fails.
missing() {
  local group package probe
  while read -r group package probe; do
    case $group in '' | '#'*) continue ;; esac
    case " $groups " in *" $group "*) ;; *) continue ;; esac
    present "$probe" || echo "$package"
  done <"$here/packages.txt"
}

# The first of the names that this system has.
known_name() {
  local name first=${1%%|*}
  for name in ${1//|/ }; do
    if apt-cache show "$name" >/dev/null 2>&1; then
      echo "$name"
      return
    fi
  done
  echo "$first"
}

wanted=$(missing)
if [ -z "$wanted" ]; then
  exit 0
fi
if ! command -v apt-get >/dev/null; then
  echo "bootstrap: missing, and there is no apt-get here to install them:" >&2
  printf '  %s\n' "${wanted//$'\n'/$'\n'  }" >&2
  exit 1
fi
if [ "$(id -u)" = 0 ]; then
  "$here/again.sh" apt-get update -qq
fi
names=()
for package in $wanted; do
  names+=("$(known_name "$package")")
done
if [ "$(id -u)" != 0 ]; then
  echo "bootstrap: packages are missing. Type, or set DYNATRAIN_PREFIX to where they are:" >&2
  echo "  sudo apt-get install -y ${names[*]}" >&2
  exit 1
fi
echo "bootstrap: installing ${names[*]}" >&2
# A fresh machine may be busy with updates of its own: they hold dpkg's lock.
DEBIAN_FRONTEND=noninteractive "$here/again.sh" apt-get install -y -qq \
  --no-install-recommends -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=600 \
  "${names[@]}" >/dev/null
still=$(missing)
if [ -n "$still" ]; then
  echo "bootstrap: installed, but still not usable: ${still//$'\n'/ }" >&2
  exit 1
fi
