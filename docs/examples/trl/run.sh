#!/usr/bin/env bash
# GRPO of TRL with a vLLM server, which it starts.
. "$(dirname "$0")/../python.sh"
