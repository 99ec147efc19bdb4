#!/usr/bin/env bash
# GRPO of TRL with a vLLM server, which it starts.
# usage: run.sh
# shellcheck source=docs/examples/python.sh
. "$(dirname "$0")/../python.sh"
