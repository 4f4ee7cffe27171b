"""Marks of the files of a model: equal marks, equal content, for all who do not forge. A mark takes little time, however large the file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

_OF_A_MODEL = ("config.json", "*.py", "*.safetensors", "pytorch_model*.bin")
_SMALL, _SAMPLE, _SAMPLES = 64 << 20, 1 << 16, 256


def hash_of(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def model_marks(folder: Path) -> dict[str, str]:
    """Marks of configuration, code and weights, by name: hashes of small files, and of the size and samples of large ones."""
    return {path.name: _mark(path) for pattern in _OF_A_MODEL for path in sorted(folder.glob(pattern))}


def changed_marks(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Names of files that have changed, come or gone."""
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))


def _mark(path: Path) -> str:
    size = path.stat().st_size
    if size <= _SMALL:
        return hash_of(path)
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        for sample in range(_SAMPLES):
            file.seek((size - _SAMPLE) * sample // (_SAMPLES - 1))
            digest.update(file.read(_SAMPLE))
    return digest.hexdigest()
