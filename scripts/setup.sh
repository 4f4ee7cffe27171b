#!/usr/bin/env bash
# Makes .venv from the lock file that fits this machine. Needs python3 (3.11) and nothing else; as root on Debian or Ubuntu it
# installs the system packages it misses, elsewhere it names them.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$1"; say "next: $2"; exit 1; }

python=${PYTHON:-$(command -v python3.11 || command -v python3 || true)}
[ -n "$python" ] || die "no python3 found" "install Python 3.11 (Debian 12: apt-get install python3)"
"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' ||
  die "$python is $("$python" -V 2>&1), and the lock files are for Python 3.11" "PYTHON=/path/to/python3.11 make setup"

# What wheels cannot bring: venv on Debian, a compiler and Python's headers (DeepSpeed builds its CPU optimizer on first use),
# libaio (offload to NVMe), libnuma (vLLM on cpu), ps (Ray).
missing=()
"$python" -c 'import ensurepip' 2>/dev/null || missing+=("python3-venv")
command -v g++ >/dev/null || missing+=("g++")
header=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')/Python.h
[ -e "$header" ] || missing+=("python3-dev")
[ -e /usr/include/libaio.h ] || missing+=("libaio-dev")
ldconfig -p 2>/dev/null | grep -q libnuma.so.1 || missing+=("libnuma1")
command -v ps >/dev/null || missing+=("procps")
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing ${missing[*]}"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  elif [[ " ${missing[*]} " == *" python3-venv "* ]]; then
    die "missing: ${missing[*]}" "sudo apt-get install ${missing[*]}"
  else
    say "missing: ${missing[*]}; CPU offload, NVMe offload or scoring will say so when they need them (apt-get install ${missing[*]})"
  fi
fi

lock=requirements/cpu.txt
if command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q GPU; then lock=requirements/gpu.txt; fi
say "using $lock"

[ -x .venv/bin/python ] || "$python" -m venv .venv
uv=$(sed -n 's/^\(uv==[^ ]*\).*/\1/p' "$lock")
[ "$(.venv/bin/uv --version 2>/dev/null | cut -d' ' -f1,2)" = "${uv/==/ }" ] ||
  .venv/bin/python -m pip install --quiet --disable-pip-version-check "$uv"
# Compiled now, once: where PYTHONDONTWRITEBYTECODE is set (many container images do), every rank and engine would compile
# torch, transformers and vLLM anew, 15 s of CPU each time.
.venv/bin/uv pip sync --quiet --python .venv/bin/python --require-hashes --compile-bytecode "$lock"
.venv/bin/uv pip install --quiet --python .venv/bin/python --no-deps --editable .
touch .venv/.ready
say "ready: .venv/bin/tuneyard"
