#!/usr/bin/env bash
# Makes .venv from the lock file that fits this machine. Takes Python 3.11, 3.12 or 3.13 where one is on PATH, and else brings 3.12
# through uv. As root on Debian or Ubuntu it installs the system packages that are missing, elsewhere it names them.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$1"; say "next: $2"; exit 1; }

fits() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; }
version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || echo "none that runs"; }
runs() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null; }
as_root_on_debian() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }
apt_install() {
  say "installing $*"
  apt-get -qq update
  DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$@" >/dev/null
}

system=$(uname -s)
if [ "$system" = Darwin ] && [ "$(uname -m)" = x86_64 ]; then
  die "this is an Intel Mac, and torch has no wheels for it" "set up on Linux, or on a Mac with an Apple processor and macOS 14 or newer"
fi

lock=requirements/cpu.txt
if command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q GPU; then lock=requirements/gpu.txt; fi
locked_uv=$(sed -n 's/^uv==\([^ ]*\).*/\1/p' "$lock")
bootstrap=$(mktemp -d)
trap 'rm -rf "$bootstrap"' EXIT
awk '/^uv==/ {on = 1} on {print} on && !/\\$/ {exit}' "$lock" >"$bootstrap/uv.txt"

# The Python of .venv: $PYTHON, or the one that .venv has, or the first on PATH that the lock files are for. Empty: uv has to bring it.
python=
if [ -n "${PYTHON:-}" ]; then
  command -v "$PYTHON" >/dev/null || die "PYTHON=$PYTHON is no program" "PYTHON=/path/to/python3.12 make setup, or make setup without PYTHON"
  fits "$PYTHON" || die "PYTHON=$PYTHON is $("$PYTHON" -V 2>&1 || true), and the lock files are for Python 3.11, 3.12 and 3.13" \
    "PYTHON=/path/to/python3.12 make setup, or make setup without PYTHON, which brings one where none is there"
  python=$PYTHON
else
  for candidate in .venv/bin/python python3 python3.13 python3.12 python3.11; do
    if fits "$candidate"; then python=$candidate; break; fi
  done
fi
if [ -n "$python" ] && [ -e .venv ] && [ "$(version_of .venv/bin/python)" != "$(version_of "$python")" ]; then
  die ".venv has Python $(version_of .venv/bin/python), and $python is Python $(version_of "$python")" "rm -r .venv, then make setup again"
fi

# What wheels cannot bring: venv on Debian, a compiler and Python's headers (DeepSpeed builds its CPU optimizer on first use),
# libaio (offload to NVMe), libnuma (vLLM on cpu), ps (Ray).
missing=()
if [ -n "$python" ]; then
  "$python" -c 'import ensurepip' 2>/dev/null || missing+=("python3-venv")
  header=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')/Python.h
  [ -e "$header" ] || missing+=("python3-dev")
elif ! command -v uv >/dev/null; then
  # Any Python can install uv, which then brings the Python of .venv.
  runs python3 && python3 -c 'import ensurepip' 2>/dev/null || missing+=("python3-venv")
fi
command -v g++ >/dev/null || missing+=("g++")
if [ "$system" = Linux ]; then
  [ -e /usr/include/libaio.h ] || missing+=("libaio-dev")
  # No `grep -q`: it would end before ldconfig, which then fails, and so would the pipe.
  ldconfig -p 2>/dev/null | grep libnuma.so.1 >/dev/null || missing+=("libnuma1")
  command -v ps >/dev/null || missing+=("procps")
fi
if [ ${#missing[@]} -gt 0 ]; then
  if as_root_on_debian; then
    apt_install "${missing[@]}"
  elif [[ " ${missing[*]} " == *" python3-venv "* ]]; then
    die "missing: ${missing[*]}" "sudo apt-get install ${missing[*]}; without rights for that, install uv (it brings its own Python)"
  else
    say "missing: ${missing[*]}; CPU offload, NVMe offload or scoring will say so when they need them (apt-get install ${missing[*]})"
  fi
fi
if [ "$system" = Darwin ]; then
  say "macOS: vLLM has no wheels here, so that train and plan work and score tasks are refused; LightGBM (tune tasks) needs libomp: brew install libomp"
fi

# Debian's newest Python may be just what was missing.
if [ -z "$python" ] && fits python3; then python=python3; fi

if [ -n "$python" ]; then
  say "using $lock and $("$python" -V)"
  [ -x .venv/bin/python ] || "$python" -m venv .venv
else
  found=$(python3 -V 2>/dev/null || echo "no python3")
  say "using $lock; there is $found here, and the lock files are for Python 3.11, 3.12 and 3.13: uv brings Python 3.12"
  if command -v uv >/dev/null; then
    uv=uv
  else
    python3 -m venv "$bootstrap/venv" &&
      "$bootstrap/venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$bootstrap/uv.txt" ||
      die "uv could not be installed by $found" "install uv or Python 3.12 yourself, then make setup"
    uv=$bootstrap/venv/bin/uv
  fi
  "$uv" venv --quiet --seed --python 3.12 .venv ||
    die "uv could not bring Python 3.12" "install Python 3.11, 3.12 or 3.13, then PYTHON=/path/to/it make setup"
fi

[ "$(.venv/bin/uv --version 2>/dev/null | cut -d' ' -f2)" = "$locked_uv" ] ||
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r "$bootstrap/uv.txt"
# Compiled now, once: where PYTHONDONTWRITEBYTECODE is set (many container images do), every rank and engine would compile
# torch, transformers and vLLM anew, 15 s of CPU each time.
say "installing $(grep -c '^[a-zA-Z0-9]' "$lock") packages, and compiling their modules: 1 to 4 minutes, and the time to download what uv has not cached"
.venv/bin/uv pip sync --quiet --python .venv/bin/python --require-hashes --compile-bytecode "$lock"
say "building Tuneyard with its native core: half a minute"
.venv/bin/uv pip install --quiet --python .venv/bin/python --no-deps --editable .
.venv/bin/python -m compileall -q platform operators || true # an editable package is not compiled with the others
touch .venv/.ready
say "ready: .venv/bin/tuneyard"
