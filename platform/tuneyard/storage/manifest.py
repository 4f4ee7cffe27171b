"""The manifest of a folder: which files it has, how large, with which hashes. Written last, it is the commit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tuneyard.api import StorageError

MANIFEST = "manifest.json"
EXECUTABLE = "executable"
"""Of `extra`: the files that may be executed, for folders of programs."""
FORMAT = 1


@dataclass(frozen=True)
class ManifestFile:
    """`path` is relative to the folder; `sha256` in hexadecimal."""

    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """Files by path. `extra` is the writer's own: a data cursor, a plan, a fencing token."""

    files: tuple[ManifestFile, ...]
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    def to_json(self) -> bytes:
        """The same bytes for the same content: the hash of a manifest names the content of its folder."""
        files = [{"path": f.path, "size": f.size_bytes, "sha256": f.sha256} for f in sorted(self.files, key=lambda f: f.path)]
        return json.dumps({"format": FORMAT, "files": files, "extra": dict(self.extra)}, indent=1, sort_keys=True).encode() + b"\n"

    @classmethod
    def from_json(cls, data: bytes) -> Manifest:
        """Raises StorageError for what is not a manifest of a known format."""
        try:
            values = json.loads(data)
            known = values["format"] <= FORMAT
            files = tuple(ManifestFile(f["path"], f["size"], f["sha256"]) for f in values["files"])
            extra = values["extra"]
        except (ValueError, KeyError, TypeError) as error:
            raise StorageError(f"a {MANIFEST} is damaged: {error!r}", "remove that folder; it will be made again") from error
        if not known:
            raise StorageError(f"a {MANIFEST} has format {values['format']}", f"use a newer Tuneyard: this one reads up to {FORMAT}")
        return cls(files, extra)
