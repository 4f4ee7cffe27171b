#!/usr/bin/env bash
# Runs benchmarks/gpu_check.py on a machine that has torch, transformers, PEFT and accelerate, and no network: the rest comes from the wheels
# that scripts/gpu_wheels.sh has fetched. Nothing is installed into the machine's Python. Arguments are those of the check.
#   OUT      results, by default build/gpu-check
#   WORK     models and caches (40 GB), by default the folder for temporary files
#   WHEELS   by default .whl
#   PYTHON   by default python3
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
wheels=${WHEELS:-.whl}
export WORK=${WORK:-${TMPDIR:-/tmp}} OUT=${OUT:-build/gpu-check}
site=$WORK/tuneyard-site aio=$WORK/tuneyard-libaio cuda=${CUDA_HOME:-/usr/local/cuda}
mkdir -p "$site" "$aio"

"$python" -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir --upgrade --target "$site" "$wheels"/*.whl
for package in "$wheels"/*.deb; do
  if [ -e "$package" ]; then dpkg -x "$package" "$aio"; fi
done

libraries=$aio/usr/lib/x86_64-linux-gnu:$aio/lib/x86_64-linux-gnu
export CPATH=$aio/usr/include${CPATH:+:$CPATH}
export LIBRARY_PATH=$libraries:$cuda/lib64/stubs:/usr/local/nvidia/lib64${LIBRARY_PATH:+:$LIBRARY_PATH}
export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export PYTHONPATH=$site:$PWD/platform:$PWD/operators:$PWD PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1
export XDG_CACHE_HOME=${XDG_CACHE_HOME:-$WORK/tuneyard-cache}
exec "$python" benchmarks/gpu_check.py "$@"
