"""The state file of a rewrite in its output folder: the plan, and whether all files are complete.

The folder is a table once the state says `finished`. A killed rewrite leaves an unfinished state: readers refuse the folder, and the same
command continues with the missing files.
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
class RewriteSettings:
    """The inputs of a plan. `log`: digest of the access log; `log_summary`: its size, for people."""

    flatten: float | None
    hole_bytes: int
    request_bytes: int
    log: str
    log_summary: str

    def differences(self, now: RewriteSettings) -> list[str]:
        """Each setting that differs, in words; the log is not compared."""
        pairs = (
            ("--flatten", _flatten_text(self.flatten), _flatten_text(now.flatten)),
            ("gap", f"{self.hole_bytes / 1024:g} KiB", f"{now.hole_bytes / 1024:g} KiB"),
            ("request", f"{self.request_bytes:,} bytes", f"{now.request_bytes:,} bytes"),
        )
        return [f"{name} {made}, now {given}" for name, made, given in pairs if made != given]


@dataclass(frozen=True)
class RewriteState:
    """`identity`: the identity of the source table. `columns`: the new order. `entries`: map entries that become separate columns."""

    source: str
    identity: str
    columns: tuple[str, ...]
    entries: tuple[str, ...] = ()
    finished: bool = False
    settings: RewriteSettings | None = None
    """None: an older version wrote the state without settings."""
    last_log: str = ""
    """Digest of the log of the last start: a log may grow between a kill and the next start."""

    def refuse_others(self, uri: str, now: RewriteSettings) -> None:
        """Raises BadInput for settings that would give another table.

        An unfinished rewrite keeps its plan while the log grows, so its log is not compared. A finished rewrite is not repeated: the
        caller's settings must match it.
        """
        differences = self._differences(now)
        if differences:
            begun = "made" if self.finished else "begun, and not finished,"
            raise BadInput(f"{uri}: was {begun} with other settings: {'; '.join(differences)}", "give another --out, or remove this folder")

    def _differences(self, now: RewriteSettings) -> list[str]:
        if self.settings is None:
            return ["its state does not name them"] if self.finished else []
        found = self.settings.differences(now)
        if self.finished and now.log not in (self.settings.log, self.last_log):
            found.append(f"a log of {self.settings.log_summary}, now another of {now.log_summary}")
        return found


def read_state(store: Store) -> RewriteState | None:
    """The state in a folder; None where there is none. Raises BadInput for a state that cannot be read."""
    try:
        content: dict[str, Any] = json.loads(store.get(STATE_FILE))
        columns, entries = tuple(content.pop("columns")), tuple(content.pop("entries"))
        settings = RewriteSettings(**found) if (found := content.pop("settings", None)) else None
        return RewriteState(columns=columns, entries=entries, settings=settings, **content)
    except NotFound:
        return None
    except (ValueError, KeyError, TypeError) as error:
        cause = f"{store.url(STATE_FILE)}: not the state of a rewrite: {error!r}"
        raise BadInput(cause, "remove the folder, and rewrite the table again") from error


def write_state(store: Store, state: RewriteState) -> None:
    """Replace the state atomically."""
    store.put(STATE_FILE, json.dumps(asdict(state), sort_keys=True).encode() + b"\n")


def _flatten_text(share: float | None) -> str:
    return "not given" if share is None else f"{share:g}"


def refuse_unfinished(uri: str) -> None:
    """Raises BadInput for a folder with an unfinished rewrite. Globs and single files are not checked."""
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
