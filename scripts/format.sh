#!/usr/bin/env bash
# clang-format over our sources.  usage: format.sh [--check]
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v clang-format >/dev/null; then
  echo "format: clang-format is not installed" >&2
  exit 77
fi
case ${1:-} in
  '') how=(-i) ;;
  --check) how=(--dry-run --Werror) ;;
  *) echo "usage: format.sh [--check]" >&2; exit 2 ;;
esac
find bench bridge cli core lib rollout score tests trainer \
  -type f -regextype posix-extended \
  -regex '.*\.(c|h|cc|cpp|hpp|cu|cuh)' -print0 2>/dev/null |
  xargs -0 -r clang-format "${how[@]}"
