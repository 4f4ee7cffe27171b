"""Checkpoints: all ranks write into one folder, and the manifest, written last by rank 0, makes it count. No manifest, no checkpoint.

A local output is written in place, so nothing is copied; for any other, each rank writes to local scratch and uploads its share.
`save` and `restore` are the whole interface to the rest of training.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuneyard.api import BadInput, StorageError
from tuneyard.storage import MANIFEST, Manifest, ManifestFile, is_local, join, local_path, open_store
from tuneyard.tracking.events import Checkpointed, Emit, Warned
from tuneyard.training.distributed import World, barrier, broadcast_object, gather_objects

FOLDER = "checkpoints"


@dataclass(frozen=True)
class Restored:
    """A committed checkpoint, on a local disk that this rank can read."""

    step: int
    folder: Path
    extra: Mapping[str, Any]


class Checkpoints:
    """The checkpoints of one train task. Every method is collective: all ranks call it.

    `made_by` says under which layout and task they are made; a checkpoint of another one is refused, with the difference named.
    """

    def __init__(self, *, output: str, scratch: Path, task: str, keep: int, made_by: Mapping[str, Any], world: World, emit: Emit) -> None:
        self._store = open_store(output)
        self._local = local_path(output) if is_local(output) else None
        self._scratch = scratch
        self._task = task
        self._keep = keep
        self._made_by = dict(made_by)
        self._world = world
        self._emit = emit

    def save(self, step: int, write: Callable[[Path], None], extra: Mapping[str, Any], *, keep_step: int = 0) -> None:
        """Let every rank `write` its state into a folder and commit it as step `step`.

        The newest `keep` and `keep_step` stay. Raises StorageError, with earlier checkpoints untouched, if anything could not be written.
        """
        began = time.perf_counter()
        folder = self._begin(step)
        try:
            write(folder)
        except Exception as error:
            shutil.rmtree(folder, ignore_errors=True)
            if not _is_write_error(error):
                raise
            raise _not_written(folder, error) from error
        barrier(self._world)
        files = self._put_share(step, folder)
        manifest = Manifest(tuple(files), {**extra, "step": step, "made_by": self._made_by})
        self._on_first(lambda: self._store.put(join(_name(step), MANIFEST), manifest.to_json()))
        if self._local is None and self._world.is_first_here:
            shutil.rmtree(folder, ignore_errors=True)
        self._on_first(lambda: self._retain(step, keep_step))
        self._emit(
            Checkpointed(
                task=self._task,
                step=step,
                uri=self._store.url(_name(step)),
                seconds=time.perf_counter() - began,
                bytes=manifest.size_bytes,
            )
        )

    def restore(self) -> Restored | None:
        """The newest committed checkpoint that is whole; None if there is none. Damaged ones are passed over, with a warning."""
        for step in broadcast_object(self._world, self._committed() if self._world.is_first else None):
            restored = self.fetch(step)
            if restored is None:
                self._emit(
                    Warned(task=self._task, message=f"checkpoint {self._store.url(_name(step))} is damaged; trying the one before it")
                )
                continue
            self._check_made_by(restored)
            return restored
        return None

    def fetch(self, step: int) -> Restored | None:
        """The checkpoint of `step` on a local disk; None if a file is missing or does not match its hash."""
        folder = self._folder(step)
        try:
            if self._local is not None:
                manifest: Manifest | None = self._store.manifest(_name(step))
                assert manifest is not None
                whole = all(_is_whole(folder, file) for file in _share(manifest.files, self._world.rank, self._world.size))
            else:
                manifest = self._store.download_folder(_name(step), folder) if self._world.is_first_here else None
                whole = True
        except StorageError:
            manifest, whole = None, False
        everywhere = all(gather_objects(self._world, whole))
        extra = broadcast_object(self._world, dict(manifest.extra) if manifest is not None else {})
        return Restored(step, folder, extra) if everywhere else None

    def _begin(self, step: int) -> Path:
        folder = self._folder(step)
        if self._world.is_first_here:
            shutil.rmtree(folder, ignore_errors=True)
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise _not_written(folder, error) from error
        barrier(self._world)
        return folder

    def _put_share(self, step: int, folder: Path) -> list[ManifestFile]:
        """Hash (and upload) this rank's share of the files; all entries, from all ranks, on every rank."""
        shared_by_all = self._local is not None
        rank, ranks = (self._world.rank, self._world.size) if shared_by_all else (self._world.local_rank, self._world.local_size)
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        entries: list[ManifestFile] = []
        failure: StorageError | None = None
        try:
            for path in _share(paths, rank, ranks):
                name = path.relative_to(folder).as_posix()
                if not shared_by_all:
                    self._store.put_file(join(_name(step), name), path)
                entries.append(ManifestFile(name, path.stat().st_size, _sha256(path)))
        except StorageError as error:
            failure = error
        shares = gather_objects(self._world, (entries, failure))
        for _, failed in shares:
            if failed is not None:
                raise failed
        return list({entry.path: entry for share, _ in shares for entry in share}.values())

    def _on_first(self, action: Callable[[], None]) -> None:
        """Run on rank 0; every rank learns how it went."""
        failure: StorageError | None = None
        if self._world.is_first:
            try:
                action()
            except StorageError as error:
                failure = error
        failed = broadcast_object(self._world, failure)
        if failed is not None:
            raise failed

    def _retain(self, newest: int, keep_step: int) -> None:
        committed = self._committed()
        for step in committed[self._keep :]:
            if step != keep_step:
                self._store.delete_prefix(_name(step))
        for step in self._steps():
            if step < newest and step not in committed:  # what an attempt that died had begun
                self._store.delete_prefix(_name(step))
        if self._local is not None:
            for step in [s for s in _local_steps(self._local / FOLDER) if s not in self._steps()]:
                shutil.rmtree(self._folder(step), ignore_errors=True)  # the store removes files; folders are left

    def _steps(self) -> list[int]:
        return _steps_of(file.path for file in self._store.list(FOLDER))

    def _committed(self) -> list[int]:
        """Steps with a manifest, newest first."""
        return _steps_of(file.path for file in self._store.list(FOLDER) if file.path.endswith(f"/{MANIFEST}"))

    def _check_made_by(self, restored: Restored) -> None:
        before = restored.extra.get("made_by", {})
        different = [name for name, value in self._made_by.items() if before.get(name) != value]
        if different:
            changes = ", ".join(f"{name} was {before.get(name)!r} and is {self._made_by[name]!r}" for name in different)
            raise BadInput(
                f"the checkpoint of step {restored.step} in {self._store.url(FOLDER)} was made by another task or layout: {changes}",
                "go back to those settings, or start anew with another output folder",
            )

    def _folder(self, step: int) -> Path:
        return (self._local or self._scratch) / _name(step)


def _name(step: int) -> str:
    return f"{FOLDER}/step-{step}"


def _steps_of(paths: Any) -> list[int]:
    found = {int(match.group(1)) for path in paths if (match := re.match(rf"{FOLDER}/step-(\d+)/", path))}
    return sorted(found, reverse=True)


def _local_steps(folder: Path) -> list[int]:
    return [int(path.name.removeprefix("step-")) for path in folder.glob("step-*") if path.name.removeprefix("step-").isdigit()]


def _share(items: Any, rank: int, ranks: int) -> list[Any]:
    return list(items)[rank::ranks]


def _is_whole(folder: Path, file: ManifestFile) -> bool:
    path = folder / file.path
    return path.is_file() and path.stat().st_size == file.size_bytes and _sha256(path) == file.sha256


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _is_write_error(error: Exception) -> bool:
    """True for what a disk that takes no more makes torch and safetensors raise: neither passes the OSError on."""
    if isinstance(error, OSError) or type(error).__module__.startswith("safetensors"):
        return True
    return (
        isinstance(error, RuntimeError) and re.search(r"PytorchStreamWriter|unexpected pos|iostream|[Ii]/O error", str(error)) is not None
    )


def _not_written(folder: Path, error: BaseException) -> StorageError:
    free_gb = shutil.disk_usage(next(p for p in (folder, *folder.parents) if p.exists())).free / 1e9
    reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
    return StorageError(
        f"the checkpoint could not be written to {folder} ({free_gb:.2f} GB free): {reason}",
        "free some space or lower checkpoint.keep, then run again with --resume: earlier checkpoints are untouched",
    )
