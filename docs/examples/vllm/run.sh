#!/usr/bin/env bash
# A vLLM server that gets weights from a PyTorch trainer while it runs.
. "$(dirname "$0")/../python.sh"
