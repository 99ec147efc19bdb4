#!/usr/bin/env bash
# A trainer under FSDP2 and a server, both PyTorch.
# usage: run.sh
# shellcheck source=docs/examples/python.sh
. "$(dirname "$0")/../python.sh"
