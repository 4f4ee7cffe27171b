"""Folders that a command writes where a person says: new ones, and what a killed command has left, but never the files of anything else.

In a bucket, a folder grows file by file. Meanwhile one more file names them all, by which the next command tells them from other files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuneyard.api import BadInput
from tuneyard.storage.folders import BEGUN, scan
from tuneyard.storage.manifest import MANIFEST
from tuneyard.storage.opening import open_store
from tuneyard.storage.store import Store
from tuneyard.storage.uris import is_local


def refuse_filled(target: str, *, over: str = "") -> None:
    """Raises BadInput for a folder or URI with files, unless a `fill` that was killed has left all of them.

    `over`: a complete folder with this entry in its manifest is let pass too, if it has no files beside those of the manifest.
    """
    store = open_store(target)
    if not store.has_files():
        return
    own = _own_files(store, over)
    others = [file.path for file in store.list() if file.path not in own] if own else []  # else not listed: it may be a whole bucket
    if others or not own:
        named = f": it also holds {', '.join(others[:3])}" if others else ""
        raise BadInput(f"{target} is not empty{named}", "give another folder, or empty it")


def _own_files(store: Store, over: str) -> set[str]:
    """Files that may be replaced; none where the folder is of anything else."""
    if store.is_complete(""):
        manifest = store.manifest("")
        return {MANIFEST, BEGUN, *(file.path for file in manifest.files)} if over and over in manifest.extra else set()
    return {BEGUN, *json.loads(store.get(BEGUN))} if store.exists(BEGUN) else set()


def fill(target: str, folder: Path, extra: Mapping[str, Any], *, over: str = "", move: bool = False) -> None:
    """Store a local folder as the folder `target`, completely or not at all. Asks `refuse_filled` again, because hours may have passed.

    `extra`: entries of the manifest. `move`: the local folder may go, so that a rename is enough on one file system.
    """
    refuse_filled(target, over=over)
    store, remote = open_store(target), not is_local(target)
    if remote:
        names = {name for name, _ in scan(folder)} | {file.path for file in store.list()}
        store.put(BEGUN, json.dumps(sorted(names)).encode())
    (store.commit_folder if move else store.upload_folder)(folder, "", extra=extra)
    if remote:
        store.delete(BEGUN)
