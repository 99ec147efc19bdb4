#!/usr/bin/env bash
# A trainer under FSDP2 and a server, both PyTorch.
. "$(dirname "$0")/../python.sh"
