"""The note that a rewrite leaves in its output folder: the plan that it follows, and whether all files are there.

The folder is a table from the moment the note says so. A killed rewrite leaves an unfinished note: readers refuse the folder, and the
same command goes on with the files that are missing.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from tuneyard.api import BadInput
from tuneyard.storage import NotFound, Store, open_store, scheme_of

STATE_FILE = "_rewrite.json"
_STORES = ("file", "s3", "gs", "hdfs", "webhdfs", "swebhdfs")


@dataclass(frozen=True)
class RewriteState:
    """`identity`: of the source table. `columns`: the new order. `entries`: map entries that get columns of their own."""

    source: str
    identity: str
    columns: tuple[str, ...]
    entries: tuple[str, ...] = ()
    finished: bool = False


def read_state(store: Store) -> RewriteState | None:
    """The note in a folder; None where there is none. Raises BadInput for one that cannot be read."""
    try:
        content: dict[str, Any] = json.loads(store.get(STATE_FILE))
        columns, entries = tuple(content.pop("columns")), tuple(content.pop("entries"))
        return RewriteState(columns=columns, entries=entries, **content)
    except NotFound:
        return None
    except (ValueError, KeyError, TypeError) as error:
        cause = f"{store.url(STATE_FILE)}: not a note of a rewrite: {error!r}"
        raise BadInput(cause, "remove the folder, and rewrite the table again") from error


def write_state(store: Store, state: RewriteState) -> None:
    """Replace the note: whole or not at all."""
    store.put(STATE_FILE, json.dumps(asdict(state), sort_keys=True).encode() + b"\n")


def refuse_unfinished(uri: str) -> None:
    """Raises BadInput for a folder whose rewrite was not finished. Globs and single files are not looked at."""
    if scheme_of(uri) not in _STORES or any(mark in uri for mark in "*?[") or uri.endswith(".parquet"):
        return
    store = open_store(uri)
    if not store.exists(STATE_FILE):
        return
    state = read_state(store)
    if state is not None and not state.finished:
        raise BadInput(
            f"{uri}: a rewrite of {state.source} into this folder was not finished", "run the same `tuneyard data reorder` again"
        )
