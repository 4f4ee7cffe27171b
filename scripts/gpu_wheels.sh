#!/usr/bin/env bash
# Fetches the wheels that scripts/gpu_check.sh installs on a machine without network: what training imports beside torch, transformers, PEFT
# and accelerate, for Python 3.12 on x86-64, in the versions of requirements/gpu.txt, made small. Run it in a clone whose .venv is set up.
#   bash scripts/gpu_wheels.sh [FOLDER]     by default .whl, which git ignores
set -euo pipefail
cd "$(dirname "$0")/.."
names=(annotated-types bitsandbytes datasets dill hjson liger-kernel multiprocess obstore pydantic pydantic-core trl typing-inspection)
pip=(.venv/bin/python -m pip --quiet --disable-pip-version-check)
folder=${1:-.whl}
rm -rf "$folder" && mkdir -p "$folder"
lines=$(mktemp)
trap 'rm -f "$lines"' EXIT

# The lines of these packages in the lock file, with their hashes.
locked() {
  awk -v wanted=" $* " '/^[a-z]/ {split($1, name, "=="); on = index(wanted, " " name[1] " ")} on' requirements/gpu.txt >"$lines"
}

locked "${names[@]}"
platforms=()
for glibc in 2_28 2_27 2_24 2_17; do platforms+=(--platform "manylinux_${glibc}_x86_64"); done
"${pip[@]}" download --no-deps --require-hashes --only-binary :all: --python-version 3.12 --implementation cp \
  "${platforms[@]}" --platform manylinux2014_x86_64 --dest "$folder" --requirement "$lines"

# DeepSpeed has a source release alone. Without compiled parts its wheel is plain Python.
locked deepspeed
DS_BUILD_OPS=0 "${pip[@]}" wheel --no-deps --require-hashes --no-build-isolation --wheel-dir "$folder" --requirement "$lines"

# bitsandbytes has libraries for each version of CUDA. The check needs those of CUDA 13.0 and of processors.
.venv/bin/python - "$folder" <<'PYTHON'
import sys
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

[whole] = Path(sys.argv[1]).glob("bitsandbytes*.whl")
small = whole.with_suffix(".small")
with ZipFile(whole) as old, ZipFile(small, "w", ZIP_DEFLATED, compresslevel=9) as new:
    for entry in old.infolist():
        if not entry.filename.endswith(".so") or entry.filename.endswith(("_cuda130.so", "_cpu.so")):
            new.writestr(entry, old.read(entry))
small.rename(whole)
PYTHON

# libaio with its headers, for offload to a disk.
if command -v apt-get >/dev/null; then
  (cd "$folder" && { apt-get -qq download libaio-dev libaio1t64 || apt-get -qq download libaio-dev libaio1; } 2>/dev/null) ||
    echo "gpu_wheels: no libaio here: offload to a disk needs the machine's own" >&2
fi
du -sh --apparent-size "$folder"
