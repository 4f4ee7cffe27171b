"""Safetensors files, written in one pass: each tensor is written and hashed directly from memory, without a copy."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

import torch

from tuneyard.storage import ManifestFile

SHARD_BYTES = 4 << 30
_CHUNK_BYTES = 16 << 20
_CODES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def size_of(tensor: torch.Tensor) -> int:
    """Bytes of a tensor's elements."""
    return int(tensor.numel() * tensor.element_size())


def write_shard(path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str] | None = None) -> ManifestFile:
    """Write CPU tensors to `path`, durably. The entry has the file's name. Raises OSError, and leaves no partial file."""
    header, place = dict[str, object](), 0
    if metadata:
        header["__metadata__"] = dict(metadata)
    for key, tensor in tensors.items():
        header[key] = {"dtype": _CODES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [place, place + size_of(tensor)]}
        place += size_of(tensor)
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    digest = hashlib.sha256()
    try:
        with path.open("wb") as file:
            for chunk in (len(head).to_bytes(8, "little"), head):
                digest.update(chunk)
                file.write(chunk)
            for tensor in tensors.values():
                view = _bytes_of(tensor)
                for start in range(0, len(view), _CHUNK_BYTES):
                    digest.update(view[start : start + _CHUNK_BYTES])
                    file.write(view[start : start + _CHUNK_BYTES])
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        path.unlink(missing_ok=True)
        raise
    return ManifestFile(path.name, 8 + len(head) + place, digest.hexdigest())


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    if tensor.numel() == 0:
        return memoryview(b"")
    return memoryview(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy())


def sha256_of(path: Path) -> str:
    """Hash of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
