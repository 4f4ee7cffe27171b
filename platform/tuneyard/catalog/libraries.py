"""Resident memory of a rank's libraries on `cpu`: measured by earlier ranks here, cached in the user's cache folder.

It consists of the pages of torch, transformers and DeepSpeed, shared with the fork server or loaded by the rank itself, before the model is
loaded and in the steps. Its size depends on the versions of the libraries, and is known only after a rank has run.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tuneyard.catalog.gpu_entries import cache_folder

_LIBRARIES = ("torch", "transformers", "trl", "peft", "deepspeed", "ray")
_MOST_GB = 64.0
"""Larger values are no measurement of libraries."""


def measured_libraries_gb() -> float | None:
    """The last measurement of ranks with the libraries that are installed here, in 1e9 bytes; None without one."""
    try:
        kept = json.loads(_file().read_text(encoding="utf-8"))
        value = kept["libraries_gb"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return float(value) if _is_possible(value) else None


def keep_libraries_gb(value: float) -> bool:
    """Cache a rank's measurement. False for an invalid value, and if nothing can be written."""
    if not _is_possible(value):
        return False
    file = _file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=file.parent, suffix=".tmp", delete=False, encoding="utf-8") as partial:
            json.dump({"libraries_gb": value, "stack": _stack()}, partial)
        Path(partial.name).replace(file)
    except OSError:
        return False
    return True


def _is_possible(value: object) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool) and math.isfinite(value) and 0 < value <= _MOST_GB


def _file() -> Path:
    return cache_folder() / f"libraries-{hashlib.sha256(_stack().encode()).hexdigest()[:16]}.json"


def _stack() -> str:
    return " ".join([f"python {platform.python_version()}", *(f"{name} {_version(name)}" for name in _LIBRARIES)])


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"
