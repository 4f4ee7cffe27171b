"""Checks that a fork of a server equals a cold start: same Python, same packages, same settings."""

from __future__ import annotations

import getpass
import os
import re
import site
import sys
import sysconfig
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path

_READ_AT_IMPORT = (
    "ACCELERATE_", "ATEN_", "BITSANDBYTES_", "BNB_", "CUBLAS_", "CUDA_", "DNNL_", "DS_", "GLIBC_", "GOMP_", "HF_", "HUGGINGFACE_", "KMP_",
    "LC_", "LD_", "MALLOC_", "MKL_", "NUMEXPR_", "NVIDIA_TF32_", "OMP_", "ONEDNN_", "OPENBLAS_", "PYTHON", "PYTORCH_", "TORCH_",
    "TORCHINDUCTOR_", "TQDM_", "TRANSFORMERS_", "TRITON_", "USE_", "VLLM_",
)  # fmt: skip
_READ_AT_IMPORT_TOO = (
    "DISABLE_TELEMETRY",
    "DO_NOT_TRACK",
    "HOME",
    "LANG",
    "TMPDIR",
    "TZ",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
)
_READ_LATER = (
    "ACCELERATE_TORCH_DEVICE", "CUDA_VISIBLE_DEVICES", "HF_TOKEN", "OMP_NUM_THREADS", "PYTHONBREAKPOINT", "PYTHONDONTWRITEBYTECODE",
    "PYTHONFAULTHANDLER", "PYTHONUNBUFFERED", "PYTORCH_NVML_BASED_CUDA_CHECK", "TORCHELASTIC_RUN_ID", "TORCH_NCCL_ASYNC_ERROR_HANDLING",
)  # fmt: skip
"""Variables that are applied after the fork, or read at each use."""
_CACHE_OF_TORCH = "TORCHINDUCTOR_CACHE_DIR"
_BY_LIBRARIES = (("VLLM_LOGGING_LEVEL", "ERROR"), ("KMP_DUPLICATE_LIB_OK", "True"))
"""Variables that TRL and scikit-learn set when they are imported. A process that looks at data may do so after its server has started."""


def read_at_import(name: str) -> bool:
    """Whether Python, the C library, or a library of the stacks reads a variable while it is loaded."""
    return name not in _READ_LATER and (name.startswith(_READ_AT_IMPORT) or name in _READ_AT_IMPORT_TOO)


def other_setting(ours: Mapping[str, str], theirs: Mapping[str, str], secret: Collection[str] = ()) -> str | None:
    """A variable that is read when the stack is loaded and differs between `ours` and `theirs`; None if there is none.

    `secret`: names of variables that the stack did not get; they are not compared. torch sets its cache folder in the process that uses it,
    and other libraries set variables at their import: these defaults count as unset.
    """
    ours, theirs = _without_default(ours), _without_default(theirs)
    names = sorted(name for name in {*ours, *theirs} if read_at_import(name) and name not in secret)
    return next((name for name in names if ours.get(name) != theirs.get(name)), None)


def _without_default(environment: Mapping[str, str]) -> Mapping[str, str]:
    defaults = (*_BY_LIBRARIES, *([(_CACHE_OF_TORCH, _default_cache_of_torch())] if _CACHE_OF_TORCH in environment else []))
    return {name: value for name, value in environment.items() if (name, value) not in defaults}


def _default_cache_of_torch() -> str:
    """As `torch._inductor.runtime.cache_dir_utils.default_cache_dir`."""
    try:
        user = getpass.getuser()
    except (KeyError, ModuleNotFoundError, OSError):
        user = f"uid_{os.getuid()}"
    return os.path.join(tempfile.gettempdir(), "torchinductor_" + re.sub(r'[\\/:*?"<>|]', "_", user))


def packages() -> list[int]:
    """Modification times, in ns, that change with every installation or removal of a package and every edit of Tuneyard's code."""
    folders = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), site.getusersitepackages()}
    own = Path(__file__).parents[1]
    newest = max(_changed(Path(folder) / name) for folder, _, files in os.walk(own) for name in files if name.endswith(".py"))
    return [*(_changed(Path(folder)) for folder in sorted(folders)), newest]


def python() -> list[object]:
    return [sys.executable, list(sys.version_info[:3])]


def _changed(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
