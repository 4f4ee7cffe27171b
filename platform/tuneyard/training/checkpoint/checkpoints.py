"""The checkpoints of one attempt: committed in the background behind a fence, restored into any layout.

1. `save` copies the state into host memory. Training waits only for this copy.
2. Every rank writes its own shards, without communication. Its index, written last, marks the rank as done.
3. Rank 0 waits for all indices, writes the manifest, and appends its hash to the commit log. This append is the commit.

No collective runs outside of `save` itself, so none can interleave with those of training.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from tuneyard.api import BadInput, StorageError, TuneyardError
from tuneyard.api.resuming import Effect, changes
from tuneyard.storage import (
    MANIFEST,
    Commit,
    Fence,
    Holder,
    Lease,
    LogState,
    Manifest,
    ManifestFile,
    NotFound,
    acquire,
    is_local,
    local_path,
    open_store,
)
from tuneyard.tracking.events import Checkpointed, Emit, Warned
from tuneyard.training.checkpoint.interval import interval_steps, mean_time_between_failures_s
from tuneyard.training.checkpoint.layout import FOLDER, FORMAT, LOG, STATE, RankIndex, index_name, inside, name_of, step_and_token
from tuneyard.training.checkpoint.loading import Restored
from tuneyard.training.checkpoint.pieces import groups_of
from tuneyard.training.checkpoint.reader import Reader
from tuneyard.training.checkpoint.shards import sha256_of
from tuneyard.training.checkpoint.state import random_state, scalar_state
from tuneyard.training.checkpoint.stored import Damaged, read_indices, read_manifest, read_state
from tuneyard.training.checkpoint.writer import PATIENCE_S, Background, not_written, patiently, take_snapshot, write_rank
from tuneyard.training.distributed import World, barrier, broadcast_object, gather_objects

Value = TypeVar("Value")

FIRST_AUTO_STEPS = 10
"""The first save of an `auto` interval: early enough to lose little, late enough to know the duration of a step."""
_IN_SETTINGS = ("model", "method", "objective", "seed", "optimizer", "global batch", "program")
"""Entries of `made_by` that `settings` repeats in full. Versions of Tuneyard that write no settings compare them."""
_LOOK_S = (0.05, 2.0)
"""Shortest and longest pause between two polls for the other ranks' indices."""
_ALL_RANKS_TIMEOUT_S = 3 * PATIENCE_S


class Checkpoints:
    """Checkpoints of one attempt. All methods are collective: every rank calls them, in the same order.

    `made_by` and `settings` (`api.resuming`) describe the task that makes them; a checkpoint of another task is refused, with the
    differences. `layout` describes how the state is cut, which matters only for tensors that cannot be re-cut.
    """

    def __init__(
        self,
        *,
        output: str,
        scratch: Path,
        task: str,
        keep: int,
        every: int | Literal["auto"],
        made_by: Mapping[str, Any],
        settings: Mapping[str, Any],
        layout: Mapping[str, Any],
        world: World,
        emit: Emit,
    ) -> None:
        self._store = open_store(output)
        self._local = local_path(output) if is_local(output) else None
        self._scratch = scratch
        self._task = task
        self._keep = keep
        self._every = every
        self._next_auto = FIRST_AUTO_STEPS
        self._made_by = dict(made_by)
        self._settings = dict(settings)
        self._layout = dict(layout)
        self._world = world
        self._emit = emit
        self._lease: Lease | None = None
        self._token = 0
        self._commits: tuple[Commit, ...] = ()
        self._background = Background()
        self._abandoned = threading.Event()
        self._failed_before = False
        self._save_cost_s = 0.0
        self._last_save: tuple[int, float] | None = None

    def kept(self, best: int) -> tuple[Commit, ...]:
        """Committed checkpoints that are kept, on rank 0: the newest, and that of the step `best` (0: none)."""
        return tuple(commit for commit in self._commits if commit in self._commits[-self._keep :] or commit.step == best)

    # Lock on the output

    def open(self, holder: Holder, *, on_lost: Callable[[], None]) -> None:
        """Acquire the output for this attempt. Raises BadInput if another job is writing there."""

        def acquired() -> tuple[int, tuple[Commit, ...]]:
            def warn(message: str) -> None:
                self._emit(Warned(task=self._task, message=message))

            self._lease = acquire(self._store, LOG, holder, on_wait=warn, on_lost=on_lost)
            return self._lease.fence.token, self._lease.fence.check().commits

        self._token, self._commits = self._from_first(acquired)

    def close(self, *, patience_s: float | None = None) -> None:
        """Let a running save end, and release the output. Not collective, and never raises: it runs after failures too."""
        self._background.wait(patience_s)
        self._abandoned.set()
        if self._lease is not None:
            try:
                self._lease.close()
            except TuneyardError as error:
                self._emit(Warned(task=self._task, message=f"the output was not given back: {error.cause}"))
            self._lease = None

    # Saving

    def is_due(self, step: int) -> bool:
        """Whether to take a checkpoint after `step`; the same on every rank."""
        return step % self._every == 0 if self._every != "auto" else step >= self._next_auto

    def save(self, trainer: Any, progress: Mapping[str, Any], extra: Mapping[str, Any], *, keep_step: int = 0, wait: bool) -> None:
        """Take a checkpoint of the step that has just ended, and keep the newest `keep` checkpoints and `keep_step`.

        `progress` is returned in `Restored.state`; `extra` is for people and other programs, in the manifest. With `wait`, return once it
        is committed. Otherwise it is written while training continues, and a save is skipped while the previous one is still being written.
        Raises StorageError if this save (with `wait`), or two in a row, could not be written, and Fenced if another attempt has taken over.
        Earlier commits are untouched.
        """
        step = trainer.state.global_step
        if wait:
            self._judge(self._end_of_save(), final=False)
        busy, errors, due = zip(*gather_objects(self._world, self._standing(step)), strict=True)
        self._next_auto = due[0]
        error = next((error for error in errors if error is not None), None)
        if error is None and any(busy):
            if self._world.is_first:
                self._emit(Warned(task=self._task, message=f"step {step} was not saved: the checkpoint before it is still being written"))
            return
        if error is not None:
            self._abandoned.set()  # rank 0 may be waiting for the failed save
        self._background.wait()
        self._judge(error, final=False)
        self._abandoned = threading.Event()
        began = time.perf_counter()
        name = name_of(step, self._token)
        snapshot = take_snapshot(groups_of(trainer, self._world, only_own_share=True), random_state(self._world.device), waited_for=wait)
        state = {**scalar_state(trainer), "progress": progress}
        ours = {
            "step": step,
            "made_by": self._made_by,
            "settings": self._settings,
            "layout": self._layout,
            "token": self._token,
            "checkpoint": FORMAT,
        }
        self._save_cost_s = time.perf_counter() - began
        self._last_save = (step, began)

        def write() -> None:
            index = write_rank(self._store, self._local, self._scratch, name, self._world.rank, snapshot)
            if self._world.is_first:
                size = self._commit(name, step, index, state, {**extra, **ours}, keep_step)
                seconds = time.perf_counter() - began
                uri = self._store.url(name)
                self._emit(Checkpointed(task=self._task, step=step, uri=uri, seconds=seconds, bytes=size, blocked_s=cost_s))

        cost_s = self._save_cost_s
        self._background.start(write)
        if wait:
            self.settle()

    def settle(self) -> None:
        """Wait until the running save is committed. Raises its error."""
        self._judge(self._end_of_save(), final=True)

    def _end_of_save(self) -> Exception | None:
        """Wait for the saves of all ranks. The error of one of them, if any."""
        if not self._world.is_first:
            self._background.wait()
        errors = gather_objects(self._world, None if self._world.is_first else self._background.take_error())
        if any(errors):
            self._abandoned.set()
        self._background.wait()
        errors[0] = broadcast_object(self._world, self._background.take_error() if self._world.is_first else None)
        return next((error for error in reversed(errors) if error is not None), None)

    def _standing(self, step: int) -> tuple[bool, Exception | None, int]:
        """Whether a save is running, the error of the last save on this rank, and the step of the next save (for rank 0)."""
        busy = self._background.busy
        error = None if busy else self._background.take_error()
        if self._every != "auto":
            return busy, error, 0
        if self._last_save is None:
            return busy, error, step + FIRST_AUTO_STEPS
        last_step, at = self._last_save
        steps = interval_steps(
            save_cost_s=self._save_cost_s,
            save_duration_s=self._background.last_s,
            step_s=(time.perf_counter() - at) / max(1, step - last_step),
            failure_s=mean_time_between_failures_s(self._world.size),
        )
        return busy, error, step + steps

    def _judge(self, error: Exception | None, *, final: bool) -> None:
        failed_before, self._failed_before = self._failed_before, error is not None
        if error is None:
            return
        if not isinstance(error, StorageError) or final or failed_before:
            raise error
        if self._world.is_first:
            self._emit(Warned(task=self._task, message=f"{error.cause}; training continues until the next checkpoint"))

    def _commit(self, name: str, step: int, own: RankIndex, state: Mapping[str, Any], extra: Mapping[str, Any], keep_step: int) -> int:
        """Wait for all ranks, then commit. Returns the size in bytes."""
        patience_s = 0.0 if self._local is not None else PATIENCE_S
        indices = self._all_indices(name, own, patience_s)
        content = json.dumps(state).encode()
        files = [ManifestFile(STATE, len(content), hashlib.sha256(content).hexdigest())]
        for index, raw in indices:
            files += [*index.files, ManifestFile(index_name(index.rank), len(raw), hashlib.sha256(raw).hexdigest())]
        manifest = Manifest(tuple(files), extra)
        body = manifest.to_json()
        fence = self._fence()
        try:
            patiently(lambda: self._store.put(inside(name, STATE), content), total_s=patience_s)
            patiently(lambda: self._store.put(inside(name, MANIFEST), body), total_s=patience_s)
            committed: LogState = patiently(lambda: fence.commit(step, name, hashlib.sha256(body).hexdigest()), total_s=patience_s)
        except StorageError as error:
            raise not_written(self._world.rank, error.cause) from error
        self._commits = committed.commits
        try:
            self._retain(fence, keep_step)
        except StorageError as error:
            self._emit(Warned(task=self._task, message=f"old checkpoints could not be removed: {error.cause}"))
        return manifest.size_bytes

    def _all_indices(self, name: str, own: RankIndex, patience_s: float) -> list[tuple[RankIndex, bytes]]:
        found: dict[int, tuple[RankIndex, bytes]] = {own.rank: (own, own.to_json())}
        deadline, pause_s = time.monotonic() + _ALL_RANKS_TIMEOUT_S, _LOOK_S[0]
        while True:
            failed = next((index for index, _ in found.values() if index.error), None)
            if failed is not None:
                raise not_written(failed.rank, failed.error)
            missing = [rank for rank in range(self._world.size) if rank not in found]
            if not missing:
                return [found[rank] for rank in sorted(found)]
            if self._abandoned.is_set() or time.monotonic() > deadline:
                raise not_written(missing[0], "its index did not arrive")
            there = {file.path for file in patiently(lambda: self._store.list(name), total_s=patience_s)}
            for rank in missing:
                path = inside(name, index_name(rank))
                if path in there:
                    raw = patiently(partial(self._store.get, path), total_s=patience_s)
                    found[rank] = RankIndex.from_json(raw), raw
            if len(found) < self._world.size:
                self._abandoned.wait(pause_s)
                pause_s = min(2 * pause_s, _LOOK_S[1])

    def _fence(self) -> Fence:
        assert self._lease is not None
        return self._lease.fence

    def _retain(self, fence: Fence, keep_step: int) -> None:
        """Remove checkpoints that are no longer kept, and unfinished ones of dead attempts."""
        commits = fence.check().commits
        kept = {commit.name for commit in [*commits[-self._keep :], *(commit for commit in commits if commit.step == keep_step)]}
        newest = commits[-1].step
        for step, token in {found for file in self._store.list(FOLDER) if (found := step_and_token(file.path))}:
            begun_by_others_now = token > self._token or (token == self._token and step > newest)
            if name_of(step, token) not in kept and not begun_by_others_now:
                self._store.delete_prefix(name_of(step, token))

    # Restoring

    def newest(self) -> Mapping[str, Any] | None:
        """What the manifest of the newest readable checkpoint says beside its files (`extra` of `save`); None if there is none."""

        def read() -> Mapping[str, Any] | None:
            found = (self._read_small(commit.step) for commit in reversed(self._commits))
            return next((small[1].extra for small in found if small is not None), None)

        return self._from_first(read)

    def restore(self) -> Restored | None:
        """The newest committed checkpoint that is whole; None if there is none. Damaged ones are skipped, with a warning."""
        for commit in reversed(self._commits):
            restored = self.fetch(commit.step)
            if restored is not None:
                self._check_made_by(restored)
                if commit.step < self._commits[-1].step:
                    self._restart(commit.step)
                self._next_auto = commit.step + FIRST_AUTO_STEPS
                return restored
            if self._world.is_first:
                message = f"checkpoint {self._store.url(commit.name)} is damaged; trying the one before it"
                self._emit(Warned(task=self._task, message=message))
        if self._commits:
            self._restart(0)
        return None

    def start_anew(self) -> None:
        """Invalidate all earlier commits."""
        if self._commits:
            self._restart(0)

    def _restart(self, step: int) -> None:
        self._commits = self._from_first(lambda: self._fence().restart(step).commits)

    def fetch(self, step: int) -> Restored | None:
        """The committed checkpoint of `step` on a local disk; None if a file is missing or does not match its hash.

        Raises BadInput if a newer version of Tuneyard wrote it, and StorageError if storage is unreachable.
        """
        found = self._from_first(lambda: self._read_small(step))
        if found is None:
            return None
        commit, manifest, indices, state = found
        same_layout = manifest.extra["layout"] == self._layout
        if same_layout and self._layout["zero"] > 0:
            needed = [indices[rank] for rank in self._world.holders]
        else:
            needed = indices
        folder = (self._local or self._scratch) / commit.name
        if not self._bring(commit.name, folder, manifest, [file.path for index in needed for file in index.files]):
            return None
        before = manifest.extra["layout"]
        same_mesh = len(indices) == self._world.size and before.get("tensor", 1) == self._world.mesh.tensor
        random = indices[self._world.rank].random if same_mesh else None
        replicated = self._layout["zero"] == before["zero"] == 0
        return Restored(step, Reader(folder, needed), state, manifest.extra, random, fits_opaque=same_layout or replicated)

    def _read_small(self, step: int) -> tuple[Commit, Manifest, list[RankIndex], dict[str, Any]] | None:
        """On rank 0, which alone knows this attempt's commits: the files without tensors; None if one is missing or damaged. Raises
        StorageError if storage is unreachable.
        """
        commit = next((commit for commit in self._commits if commit.step == step), None)
        if commit is None:
            return None
        try:
            manifest = read_manifest(self._store, commit)
            return commit, manifest, read_indices(self._store, commit, manifest), read_state(self._store, commit, manifest)
        except (NotFound, Damaged):
            return None

    def _bring(self, name: str, folder: Path, manifest: Manifest, wanted: Sequence[str]) -> bool:
        """Bring the files `wanted` into `folder`, with their hashes checked, on every rank. Ranks on the same disk share the work. False if
        a file is damaged.

        Raises StorageError, on every rank, if storage is unreachable.
        """
        if self._local is None and self._world.is_first_here:
            shutil.rmtree(folder, ignore_errors=True)
        machine = 0 if self._local is not None else self._world.rank - self._world.local_rank
        everyone = gather_objects(self._world, (machine, wanted))
        together = sorted({path for other, paths in everyone if other == machine for path in paths})
        mine = together[self._world.rank - machine :: sum(other == machine for other, _ in everyone)]
        expected = {file.path: file for file in manifest.files}
        whole, away = True, None
        try:
            for path in mine:
                if self._local is None:
                    self._store.get_file(inside(name, path), folder / path)
                whole = whole and _is_whole(folder / path, expected[path])
        except (NotFound, OSError):
            whole = False
        except StorageError as error:
            away = error
        found = gather_objects(self._world, (whole, away))
        failed = next((failure for _, failure in found if failure is not None), None)
        if failed is not None:
            raise failed
        return all(whole for whole, _ in found)

    def drop_copy(self, restored: Restored) -> None:
        """Delete the local copy of `restored`, after it has been loaded."""
        barrier(self._world)
        if self._local is None and self._world.is_first_here:
            shutil.rmtree(restored.reader.folder, ignore_errors=True)

    def _check_made_by(self, restored: Restored) -> None:
        before, known = restored.extra["made_by"], restored.extra.get("settings")
        refused = [str(change) for change in changes(known or {}, self._settings) if change.effect is Effect.REFUSED]
        if known is not None:
            before = {**before, **{name: self._made_by[name] for name in _IN_SETTINGS if name in self._made_by}}
        different = [name for name, value in self._made_by.items() if _kept(before.get(name)) != _kept(value)]
        refused += [f"{name} was {before.get(name)!r} and is {self._made_by[name]!r}" for name in different]
        if refused:
            raise BadInput(
                f"the checkpoint of step {restored.step} in {self._store.url(FOLDER)} was made by another task: {', '.join(refused)}",
                "go back to those settings, or start again with another output folder",
            )

    # Shared

    def _from_first(self, action: Callable[[], Value]) -> Value:
        """The result of `action` on rank 0, on every rank. An error of rank 0 is raised on every rank."""
        outcome: tuple[Any, TuneyardError | None] = (None, None)
        if self._world.is_first:
            try:
                outcome = action(), None
            except TuneyardError as error:
                outcome = None, error
        value, failed = broadcast_object(self._world, outcome)
        if failed is not None:
            raise failed
        result: Value = value
        return result


def _kept(value: Any) -> Any:
    """An entry of `made_by` without the settings of an adapter that may change."""
    if not isinstance(value, Mapping):
        return value
    return {name: _kept(inner) for name, inner in value.items() if name not in ("merge", "dropout")}


def _is_whole(path: Path, file: ManifestFile) -> bool:
    return path.stat().st_size == file.size_bytes and sha256_of(path) == file.sha256
