# Sourced by the examples in Python: runs example.py of the folder of the script that
# sources it, in the environment of `make vllm-check`, or by the python that
# DYNATRAIN_PYTHON names; says so where it is not there.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
scripts=$here/../../../scripts
model=$("$scripts/model.sh" --path)
python=${DYNATRAIN_PYTHON:-$("$scripts/vllm_check.sh" --python)}
if [ ! -x "$python" ]; then
  echo "skipped: scripts/vllm_check.sh --install-only makes the environment"
  exit 77
fi
cd "$here"
exec "$python" example.py "$model"
