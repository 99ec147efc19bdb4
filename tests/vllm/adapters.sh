#!/usr/bin/env bash
# What else of the package needs frameworks, in the environment of `make
# vllm-check`: the tests of python/ with torch, the wheel in an environment that
# has nothing else, TRL with a server, and the examples of docs/examples/.
# usage: adapters.sh PYTHON MODEL [PART...]
#   PART   python, wheel, trl, examples (torch, and with a server each vllm and
#          trl); all of them if none is named; shards: of python what torch's
#          own groups are needed for
set -euo pipefail
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)
python=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
model=$2
shift 2
parts=${*:-python wheel trl examples}
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
started=$SECONDS

must() { # COMMAND...: here nothing may be skipped
  local rc=0
  "$@" || rc=$?
  if [ $rc -ne 0 ]; then
    echo "adapters: exit status $rc of: $*" >&2
    exit 1
  fi
}

ends() { # COMMAND...: a hang is a failure; what ends us ends it, too
  local rc=0
  timeout 900 "$@" &
  trap 'kill $!; exit 143' INT TERM
  wait $! || rc=$?
  trap - INT TERM
  return $rc
}

in_python() {
  local library
  library=$("$python" -c 'from dynatrain import _abi; print(_abi.lib()._name)')
  cd "$root/tests/python"
  for test in tensors megatron adapters; do
    must "$python" test_$test.py
  done
  must "$python" test_placement.py --alone
  for test in binding session modules sglang verl; do
    must "$python" test_$test.py "$library"
  done
  DYNATRAIN_LIBRARY=$library must "$python" torch_shards.py
  if "$python" -m pip install --quiet --disable-pip-version-check \
      --target "$room/mypy" "mypy==2.4.1"; then
    PYTHONPATH=$room/mypy must "$python" -m mypy --cache-dir "$room/cache" \
      --config-file "$root/pyproject.toml" "$root/python/dynatrain"
  fi
  cd - >/dev/null
}

in_shards() {
  DYNATRAIN_LIBRARY=$("$python" -c 'from dynatrain import _abi; print(_abi.lib()._name)')
  export DYNATRAIN_LIBRARY
  must "$python" "$root/tests/python/torch_shards.py"
}

# Answers without anything else being installed, and away from the clone.
in_wheel() {
  must "$python" -m pip --disable-pip-version-check wheel --quiet --no-deps \
    --no-build-isolation --wheel-dir "$room/wheel" "$root"
  must python3 -m venv "$room/venv"
  must "$room/venv/bin/python" -m pip --disable-pip-version-check install \
    --quiet --no-index "$room"/wheel/dynatrain-*.whl
  cd "$room"
  must "$room/venv/bin/dynatrain" layout vllm:tp=3 --model "$model" --rank 2 |
    grep -c qkv_proj
  must "$room/venv/bin/dynatrain" plan --from fsdp2:dp=2 --to vllm:tp=3 \
    --model "$model"
  must "$room/venv/bin/python" - <<'PY'
import sys
import dynatrain
model = dynatrain.Model.from_tensors([("a", (4, 6))])
assert model.elements == 24
assert not {"torch", "numpy"} & set(sys.modules), "no framework is imported"
print("ok wheel: layout, plan and the binding, with nothing else installed")
PY
  cd - >/dev/null
}

have_trl() {
  "$python" -c 'import datasets, trl' 2>/dev/null && return
  timeout 600 "$python" -m pip install --quiet --disable-pip-version-check \
    -r requirements-trl.txt 2>"$room/pip.log" && return
  echo "adapters: TRL is left out, it does not install:" \
    "$(tail -1 "$room/pip.log")"
  return 1
}

in_trl() {
  have_trl || return 0
  must "$python" check_trl.py "$model"
}

in_examples() {
  local example last
  for example in torch vllm trl; do
    [ "$example" != trl ] || have_trl || continue
    echo "docs/examples/$example"
    case $example in
      torch) last="^version 3: .* as the trainer has them" ;;
      vllm) last="^version 2: " ;;
      trl) last="^trainer at version 2, server at 2" ;;
    esac
    DYNATRAIN_PYTHON=$python must ends "$root/docs/examples/$example/run.sh" |
      tee "$room/said"
    must grep -q "$last" "$room/said"
  done
}

for part in $parts; do
  "in_$part"
done
echo "adapters: ok ($parts), $((SECONDS - started)) s"
