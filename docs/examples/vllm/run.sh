#!/usr/bin/env bash
# A vLLM server that gets weights from a PyTorch trainer while it runs.
# usage: run.sh
# shellcheck source=docs/examples/python.sh
. "$(dirname "$0")/../python.sh"
