"""The checkpoints of an output, for people: a list of them, their integrity, and removal of old ones.

It reads only storage, and loads no torch. The commit log decides which folders count. A folder that the log does not name is a leftover of
a dead attempt, or is being written.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from tuneyard.api import BadInput, StorageError
from tuneyard.storage import (
    MANIFEST,
    Commit,
    CommitLog,
    FileInfo,
    Holder,
    LogState,
    Manifest,
    ManifestFile,
    NotFound,
    Store,
    acquire,
    is_local,
    local_path,
    open_store,
    scheme_of,
)
from tuneyard.storage.folders import Progress, in_parallel
from tuneyard.storage.lease import DEAD_AFTER_S, is_gone
from tuneyard.storage.store import OnProgress
from tuneyard.training.checkpoint.coverage import uncovered
from tuneyard.training.checkpoint.layout import FOLDER, LOG, STATE, inside, name_of, step_and_token
from tuneyard.training.checkpoint.stored import is_index, read_indices, read_manifest

_MTIME_UNITS_PER_S = {"file": 1e9, "webhdfs": 1e3, "swebhdfs": 1e3}
"""Stores whose FileInfo.version is a modification time."""


@dataclass(frozen=True)
class Stored:
    """A committed checkpoint with files in the store. `committed_at`: ISO 8601, if the store knows it; `whole`: it has its manifest."""

    step: int
    token: int
    folder: str
    size_bytes: int
    committed_at: str | None
    workers: int | None
    zero: int | None
    whole: bool


@dataclass(frozen=True)
class Leftover:
    """A folder without a commit."""

    folder: str
    size_bytes: int


@dataclass(frozen=True)
class Listing:
    """`held`: an attempt holds the log. `alive`: whether its process lives; None if that is unknown here."""

    uri: str
    checkpoints: tuple[Stored, ...]
    leftovers: tuple[Leftover, ...]
    holder: Mapping[str, Any]
    held: bool
    alive: bool | None


@dataclass(frozen=True)
class Damage:
    """A damaged file or checkpoint. `path` is relative to the task's output."""

    path: str
    reason: str


@dataclass(frozen=True)
class Verified:
    """`steps`: the verified checkpoints."""

    steps: tuple[int, ...]
    damages: tuple[Damage, ...]


@dataclass(frozen=True)
class Pruned:
    """Steps that are kept, and folders that were removed, or would be in a dry run."""

    kept: tuple[int, ...]
    removed: tuple[Leftover, ...]

    @property
    def size_bytes(self) -> int:
        return sum(folder.size_bytes for folder in self.removed)


def open_task(uri: str) -> Store:
    """The output of a train task: `uri` itself, its parent (for `…/checkpoints`), or a folder below it, in a job with one such task.

    Raises BadInput if there are no checkpoints, or checkpoints of several tasks.
    """
    store = open_store(uri)
    if store.list(LOG):
        return store
    if uri.rstrip("/").rpartition("/")[2] == FOLDER and store.list(LOG.removeprefix(f"{FOLDER}/")):
        return open_store(str(local_path(uri).absolute().parent) if is_local(uri) else uri.rstrip("/").rpartition("/")[0])
    tasks = _tasks_below(store, uri)
    if not tasks:
        raise BadInput(f"{uri} holds no checkpoints", "give the output folder of a train task: RUN/TASK, the folder that has checkpoints/")
    if len(tasks) > 1:
        raise BadInput(f"{uri} holds checkpoints of {len(tasks)} tasks: {', '.join(tasks)}", f"name one of them: {store.url(tasks[0])}")
    return open_store(store.url(tasks[0]))


def _tasks_below(store: Store, uri: str) -> list[str]:
    if is_local(uri):
        return sorted(path.parts[-3] for path in local_path(uri).absolute().glob(f"*/{LOG}"))
    return sorted({match[1] for file in store.list() if (match := re.match(rf"([^/]+)/{LOG}/", file.path))})


def commits_of(store: Store, state: LogState) -> tuple[tuple[Commit, ...], dict[str, list[FileInfo]]]:
    """Commits with at least one file in the store, and all files of checkpoints by folder.

    Retention removes old checkpoints, but their commits stay in the log. The newest is never removed, so its commit counts even without
    files.
    """
    files: dict[str, list[FileInfo]] = {}
    for file in store.list(FOLDER):
        if (found := step_and_token(file.path)) is not None:
            files.setdefault(name_of(*found), []).append(file)
    return tuple(commit for commit in state.commits if commit.name in files or commit == state.commits[-1]), files


def list_checkpoints(store: Store) -> Listing:
    """The checkpoints of an output, oldest first."""
    state = CommitLog(store, LOG).read()
    commits, files = commits_of(store, state)
    names = {commit.name for commit in commits}
    stored = tuple(_stored(store, commit, files.get(commit.name, [])) for commit in commits)
    leftovers = tuple(Leftover(name, _size(files[name])) for name in sorted(files, key=step_and_token_of) if name not in names)
    gone = None if state.closed else is_gone(state.holder)
    alive = False if state.closed else None if gone is None else not gone
    return Listing(store.url(FOLDER), stored, leftovers, state.holder, not state.closed, alive)


def step_and_token_of(folder: str) -> tuple[int, int]:
    """Sort key of checkpoint folders."""
    return step_and_token(folder) or (0, 0)


def _stored(store: Store, commit: Commit, files: Sequence[FileInfo]) -> Stored:
    info = next((file for file in files if file.path == inside(commit.name, MANIFEST)), None)
    layout: Mapping[str, Any] = {}
    if info is not None:
        try:
            layout = store.manifest(commit.name).extra.get("layout", {})
        except StorageError:
            info = None
    at = _modified_at(store, info) if info is not None else None
    workers, zero = layout.get("workers"), layout.get("zero")
    return Stored(commit.step, commit.token, commit.name, _size(files), at, workers, zero, info is not None)


def _modified_at(store: Store, file: FileInfo) -> str | None:
    units = _MTIME_UNITS_PER_S.get(scheme_of(store.uri))
    if units is None or not file.version.isdigit():
        return None
    return datetime.fromtimestamp(int(file.version) / units, UTC).isoformat(timespec="seconds")


def _size(files: Iterable[FileInfo]) -> int:
    return sum(file.size_bytes for file in files)


def commit_of(store: Store, step: int | None) -> Commit:
    """The commit of `step`, or the newest. Raises BadInput, with the existing steps, if there is none."""
    commits, _ = commits_of(store, CommitLog(store, LOG).read())
    found = next((commit for commit in reversed(commits) if step in (None, commit.step)), None)
    if found is None:
        steps = ", ".join(str(commit.step) for commit in commits)
        raise BadInput(
            f"{store.url(FOLDER)} has no checkpoint of step {step}" if steps else f"{store.url(FOLDER)} has no committed checkpoint",
            f"steps that are there: {steps}" if steps else "let the task run until its first checkpoint",
        )
    return found


def verify(store: Store, *, step: int | None = None, on_progress: OnProgress | None = None) -> Verified:
    """Read every byte of all committed checkpoints, or of the one of `step`, and compare it with its commit.

    Raises BadInput if there is none.
    """
    newest = commit_of(store, step)
    commits = (newest,) if step is not None else commits_of(store, CommitLog(store, LOG).read())[0]
    damages: list[Damage] = []
    manifests: dict[Commit, Manifest] = {}
    for commit in commits:
        try:
            manifests[commit] = read_manifest(store, commit)
        except StorageError as error:
            damages.append(Damage(inside(commit.name, MANIFEST), _reason(error, store, inside(commit.name, MANIFEST))))
    progress = Progress(on_progress, sum(manifest.size_bytes for manifest in manifests.values()))
    for commit, manifest in manifests.items():
        damages += _damages(store, commit, manifest, progress)
    return Verified(tuple(commit.step for commit in commits), tuple(damages))


def _damages(store: Store, commit: Commit, manifest: Manifest, progress: Progress) -> list[Damage]:
    reasons = in_parallel(partial(_damage_of, store, commit.name, progress), manifest.files)
    damages = [Damage(inside(commit.name, file.path), reason) for file, reason in zip(manifest.files, reasons, strict=True) if reason]
    if any(is_index(damage.path) for damage in damages):
        return damages
    try:
        pieces = [piece for index in read_indices(store, commit, manifest) for piece in index.pieces]
    except StorageError as error:
        return [*damages, Damage(commit.name, _reason(error, store, commit.name))]
    return [*damages, *(Damage(commit.name, f"{name} {reason}") for name, reason in uncovered(pieces).items())]


def _damage_of(store: Store, checkpoint: str, progress: Progress, file: ManifestFile) -> str:
    """The damage of a file; empty if it is intact."""
    digest, size_bytes = hashlib.sha256(), 0
    try:
        for chunk in store.get_stream(inside(checkpoint, file.path)):
            digest.update(chunk)
            size_bytes += len(chunk)
            progress.add(len(chunk))
    except StorageError as error:
        return _reason(error, store, inside(checkpoint, file.path))
    if size_bytes != file.size_bytes:
        return f"has {size_bytes} bytes instead of {file.size_bytes}"
    return "" if digest.hexdigest() == file.sha256 else "differs from the committed content (SHA-256)"


def _reason(error: StorageError, store: Store, path: str) -> str:
    """Reason why a file is unusable. Re-raises the error if its cause is the network, not the file."""
    if isinstance(error, NotFound):
        return "is missing"
    cause = error.cause.removeprefix(f"{store.url(path)} ")
    if cause == error.cause and not is_local(store.uri):
        raise error
    return cause


def prune(
    store: Store,
    *,
    keep: int,
    dry_run: bool = False,
    on_wait: Callable[[str], None] = lambda _: None,
    dead_after_s: float = DEAD_AFTER_S,
) -> Pruned:
    """Remove all but the newest `keep` whole checkpoints, and folders without a commit. The best checkpoint of an early stop stays too.

    Prune holds the log meanwhile, so that no attempt can start to write. Raises BadInput while an attempt is alive.
    """
    if dry_run:
        state = CommitLog(store, LOG).read()
        if not state.closed and is_gone(state.holder) is False:
            raise BadInput(f"{store.url(FOLDER)} is being written to by {state.holder.get('job')}", "wait for it, or stop it")
        return _condemned(store, state, keep)
    holder = Holder.this_process(job="tuneyard checkpoints prune", attempt=1, run=uuid.uuid4().hex)
    lease = acquire(store, LOG, holder, on_wait=on_wait, dead_after_s=dead_after_s)
    try:
        condemned = _condemned(store, lease.fence.check(), keep)
        for folder in condemned.removed:
            lease.fence.check()
            store.delete_prefix(folder.folder)
    finally:
        lease.close()
    return condemned


def _condemned(store: Store, state: LogState, keep: int) -> Pruned:
    commits, files = commits_of(store, state)
    usable = [commit for commit in commits if any(file.path == inside(commit.name, MANIFEST) for file in files.get(commit.name, []))]
    kept = usable[-keep:]
    best = _best_step(store, kept[-1]) if kept else 0
    kept = [commit for commit in usable if commit in kept or commit.step == best]
    names = {commit.name for commit in kept}
    removed = tuple(Leftover(name, _size(files[name])) for name in sorted(files, key=step_and_token_of) if name not in names)
    return Pruned(tuple(commit.step for commit in kept), removed)


def _best_step(store: Store, commit: Commit) -> int:
    """The step whose weights an early stop would restore; 0: none."""
    try:
        return int(json.loads(store.get(inside(commit.name, STATE)))["progress"].get("best_step", 0))
    except (StorageError, ValueError, KeyError):
        return 0
