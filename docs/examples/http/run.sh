#!/usr/bin/env bash
# A vLLM server as the engine of `dynatrain run`: two steps of GRPO on SmolLM2,
# weights through the session, samples over HTTP.  Needs `make build`, `make
# model`, and the environment of scripts/vllm_check.sh --install-only; or another
# python with vLLM and this package, as DYNATRAIN_PYTHON.
set -euo pipefail
cd "$(dirname "$0")/../../.."
bin=$PWD/build/rel
model=$(scripts/model.sh --path)
python=${DYNATRAIN_PYTHON:-$(scripts/vllm_check.sh --python)}
if [ ! -x "$python" ] || [ ! -f "$bin/examples/engine_http.so" ]; then
  echo "skipped: scripts/vllm_check.sh --install-only and make build make what it wants"
  exit 77
fi
room=$(mktemp -d)
port=$("$python" -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
server=
finish() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  wait
  rm -rf "$room"
}
trap finish EXIT

cd "$room" # not where a folder is named like a package of Python
VLLM_SERVER_DEV_MODE=1 HF_HUB_OFFLINE=1 VLLM_CPU_KVCACHE_SPACE=1 \
  "$python" -m vllm.entrypoints.cli.main serve "$model" --host 127.0.0.1 \
  --port "$port" --served-model-name m --dtype float32 --enforce-eager \
  --max-model-len 512 --logprobs-mode processed_logprobs \
  --weight-transfer-config '{"backend": "dynatrain"}' >server.log 2>&1 &
server=$!
until "$python" -c 'import sys, urllib.request as u; u.urlopen(sys.argv[1], timeout=5)' \
    "http://127.0.0.1:$port/health" 2>/dev/null; do
  kill -0 "$server" 2>/dev/null || { tail -20 server.log; exit 1; }
  sleep 1
done

set -- steps=2 runs="$room/runs" model="$model" eval.every=0 \
  eval.before_training=false eval.limit=4 switch.deadline=600 \
  algorithm.prompts_per_step=2 algorithm.samples_per_prompt=4 \
  phase.train.batch.mini_batch=8 phase.train.layout.dtype=f32 \
  phase.rollout.layout.dtype=f32 phase.rollout.engine=plugin \
  phase.rollout.plugin.path="$bin/examples/engine_http.so" \
  phase.rollout.plugin.options="[\"url=http://127.0.0.1:$port\", \"model=m\", \"logprobs=processed\"]"
unset DYNATRAIN_PYTHON # of this script, and no setting of the command
"$bin/bin/dynatrain" run "$OLDPWD/configs/smollm2/job.toml" "${@/#/--set=}"
