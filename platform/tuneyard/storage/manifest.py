"""The manifest of a folder: its files with sizes and hashes. It is written last, and is the commit of the folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tuneyard.api import StorageError

MANIFEST = "manifest.json"
EXECUTABLE = "executable"
"""Key in `extra`: the executable files, for folders of programs."""
FORMAT = 1


@dataclass(frozen=True)
class ManifestFile:
    """`path` is relative to the folder; `sha256` in hexadecimal."""

    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """Files, and `extra` data of the writer: a data cursor, a plan, a fencing token."""

    files: tuple[ManifestFile, ...]
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    def to_json(self) -> bytes:
        """The manifest as JSON, with the same bytes for the same content: its hash names the content of the folder."""
        files = [{"path": f.path, "size": f.size_bytes, "sha256": f.sha256} for f in sorted(self.files, key=lambda f: f.path)]
        return json.dumps({"format": FORMAT, "files": files, "extra": dict(self.extra)}, indent=1, sort_keys=True).encode() + b"\n"

    @classmethod
    def from_json(cls, data: bytes) -> Manifest:
        """Parse a manifest. Raises StorageError for a damaged manifest, or one of an unknown format."""
        try:
            values = json.loads(data)
            known = values["format"] <= FORMAT
            files = tuple(ManifestFile(f["path"], f["size"], f["sha256"]) for f in values["files"])
            extra = values["extra"]
        except (ValueError, KeyError, TypeError) as error:
            raise StorageError(f"a {MANIFEST} is damaged: {error!r}", "remove that folder; it will be created again") from error
        if not known:
            raise StorageError(f"a {MANIFEST} has format {values['format']}", f"use a newer Tuneyard: this one reads up to {FORMAT}")
        return cls(files, extra)
