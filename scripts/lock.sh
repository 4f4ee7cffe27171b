#!/usr/bin/env bash
# Makes requirements/{cpu,gpu,operator}.txt anew from pyproject.toml and the .in files: for every Python and platform of pyproject.toml,
# with hashes, without an index address. Versions stay as they are unless --upgrade or --upgrade-package NAME is given.
set -euo pipefail
cd "$(dirname "$0")/.."
common=(--universal --python-version 3.11 --no-emit-index-url --generate-hashes --quiet)
.venv/bin/uv pip compile pyproject.toml --extra train --extra sign --extra score-cpu --extra operator --extra console --extra tables --extra excel \
  --extra gguf --extra lm-eval --extra wandb --extra mlflow --extra tensorboard --extra otel requirements/cpu.in "${common[@]}" \
  --override requirements/cpu-overrides.txt -o requirements/cpu.txt "$@"
# Wheels only, but for the few packages that have none: old source releases of vLLM need CUDA to be inspected.
.venv/bin/uv pip compile pyproject.toml --extra train --extra sign --extra score --extra operator --extra console --extra tables --extra excel \
  --extra gguf --extra lm-eval --extra wandb --extra mlflow --extra tensorboard --extra otel requirements/gpu.in "${common[@]}" \
  --only-binary :all: --no-binary rouge-score --no-binary deepspeed --no-binary sqlitedict --no-binary word2number -o requirements/gpu.txt "$@"
# The hub, in the versions that its tests have run with.
.venv/bin/uv pip compile pyproject.toml --extra operator --extra console --extra otel "${common[@]}" --constraint requirements/cpu.txt -o requirements/operator.txt "$@"
