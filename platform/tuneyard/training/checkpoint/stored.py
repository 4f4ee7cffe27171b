"""The small files of a committed checkpoint, each checked by hash against the log or the manifest: no torch, no tensors."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from tuneyard.api import BadInput, StorageError
from tuneyard.storage import MANIFEST, Commit, Manifest, ManifestFile, Store
from tuneyard.storage.folders import in_parallel
from tuneyard.training.checkpoint.layout import FORMAT, STATE, RankIndex, inside

_RANK_INDEX = re.compile(r"rank-\d+\.json$")


class Damaged(StorageError):
    """A file exists, but differs from the committed one."""


def is_index(path: str) -> bool:
    """True for the index of a rank."""
    return _RANK_INDEX.search(path) is not None


def read_manifest(store: Store, commit: Commit) -> Manifest:
    """The manifest of a commit. Raises NotFound, Damaged if its hash differs, BadInput if a newer version of Tuneyard wrote it."""
    manifest = Manifest.from_json(_read(store, inside(commit.name, MANIFEST), commit.sha256))
    if manifest.extra.get("checkpoint", 0) > FORMAT:
        raise BadInput(
            f"{store.url(commit.name)} has format {manifest.extra['checkpoint']}, written by a newer Tuneyard",
            f"use that version: this one reads up to {FORMAT}",
        )
    return manifest


def read_indices(store: Store, commit: Commit, manifest: Manifest) -> list[RankIndex]:
    """The indices of all ranks, in order. Raises NotFound or Damaged."""

    def read(file: ManifestFile) -> RankIndex:
        return RankIndex.from_json(_read(store, inside(commit.name, file.path), file.sha256))

    return in_parallel(read, sorted((file for file in manifest.files if is_index(file.path)), key=lambda file: file.path))


def read_state(store: Store, commit: Commit, manifest: Manifest) -> dict[str, Any]:
    """The state that all ranks share. Raises NotFound or Damaged."""
    file = next(file for file in manifest.files if file.path == STATE)
    state: dict[str, Any] = json.loads(_read(store, inside(commit.name, STATE), file.sha256))
    return state


def _read(store: Store, path: str, sha256: str) -> bytes:
    content = store.get(path)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise Damaged(
            f"{store.url(path)} differs from the committed file",
            "use another step: `tuneyard checkpoints verify` says which are whole, --step takes one of them",
        )
    return content
