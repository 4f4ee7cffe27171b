#!/usr/bin/env bash
# Makes requirements/{cpu,gpu}.txt anew from the .in files: hashes, and no index address.
set -euo pipefail
cd "$(dirname "$0")/.."
common=(--python-version 3.11 --python-platform x86_64-manylinux_2_35 --no-emit-index-url --generate-hashes --quiet)
# Sources would need CUDA to be inspected, so that the resolver may look at wheels only, but for the few that have none.
.venv/bin/uv pip compile requirements/cpu.in "${common[@]}" --override requirements/cpu-overrides.txt -o requirements/cpu.txt "$@"
.venv/bin/uv pip compile requirements/gpu.in "${common[@]}" --only-binary :all: --no-binary rouge-score --no-binary deepspeed \
  -o requirements/gpu.txt "$@"
