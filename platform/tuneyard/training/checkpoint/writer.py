"""A rank's part of a checkpoint: a snapshot taken between two steps, and a thread that writes it to storage during the next steps."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tuneyard.api import StorageError
from tuneyard.storage import ManifestFile, Store
from tuneyard.storage.retry import with_retries
from tuneyard.training.checkpoint.layout import OpaqueEntry, PieceEntry, RankIndex, index_name, inside, shard_name, tensor_key
from tuneyard.training.checkpoint.pieces import Group
from tuneyard.training.checkpoint.shards import SHARD_BYTES, size_of, write_shard

PATIENCE_S = 600.0
"""Seconds that a save waits for remote storage to return, while training continues."""


@dataclass
class Snapshot:
    """Copies of a rank's pieces in host memory, grouped into shards."""

    pieces: list[PieceEntry] = field(default_factory=list)
    opaque: list[OpaqueEntry] = field(default_factory=list)
    shards: list[dict[str, torch.Tensor]] = field(default_factory=list)
    random: Mapping[str, Any] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        return sum(size_of(tensor) for shard in self.shards for tensor in shard.values())


def take_snapshot(
    groups: Iterator[Group], random: Mapping[str, Any], *, shard_bytes: int = SHARD_BYTES, waited_for: bool = False
) -> Snapshot:
    """Copy the views of `groups`, except those that stay the same during a save that is `waited_for`. Copies from a GPU into pinned memory
    run concurrently, with one synchronisation at the end.
    """
    snapshot = Snapshot(random=random)
    room = 0
    on_gpu = False
    for group in groups:
        for piece in group.pieces:
            needed = sum(size_of(tensor) for tensor in piece.tensors.values())
            if not snapshot.shards or needed > room:
                snapshot.shards.append({})
                room = shard_bytes
            room -= needed
            number = len(snapshot.shards) - 1
            for kind, tensor in piece.tensors.items():
                on_gpu |= tensor.is_cuda
                snapshot.shards[number][tensor_key(piece.name, kind, piece.box, piece.start)] = (
                    tensor if group.stays and waited_for and not tensor.is_cuda else _copy(tensor)
                )
            snapshot.pieces.append(PieceEntry(piece.name, piece.shape, piece.box, piece.start, piece.stop, tuple(piece.tensors), number))
        for key, tensor in group.opaque.items():
            if not snapshot.shards:
                snapshot.shards.append({})
            on_gpu |= tensor.is_cuda
            snapshot.shards[-1][key] = _copy(tensor)
            snapshot.opaque.append(OpaqueEntry(key, len(snapshot.shards) - 1))
    if on_gpu:
        torch.cuda.synchronize()
    return snapshot


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_cuda:
        return tensor.detach().clone(memory_format=torch.contiguous_format)
    target = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    target.copy_(tensor.detach(), non_blocking=True)
    return target


def patiently(action: Callable[[], Any], *, total_s: float) -> Any:
    """Run `action`, and retry it while remote storage is unreachable. Lost races and fences are final, and are not retried."""
    return with_retries(action, lambda error: type(error) is StorageError, total_s=total_s)


def write_rank(store: Store, local: Path | None, scratch: Path, checkpoint: str, rank: int, snapshot: Snapshot) -> RankIndex:
    """Write a rank's shards and, last, its index below `checkpoint`. The memory of each shard is freed once it is on disk.

    `local`: the output's folder, if it is a local disk: shards are written in place. Otherwise they pass through `scratch`. A failure
    becomes an index with `error`, so that rank 0 need not wait for it.
    """
    patience_s = 0.0 if local is not None else PATIENCE_S
    index = RankIndex(rank=rank, files=(), pieces=tuple(snapshot.pieces), opaque=tuple(snapshot.opaque), random=snapshot.random)
    folder = (local or scratch) / checkpoint
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files: list[ManifestFile] = []
        for number in range(len(snapshot.shards)):
            path = folder / shard_name(rank, number)
            files.append(write_shard(path, snapshot.shards[number]))
            snapshot.shards[number] = {}
            if local is None:
                patiently(partial(store.put_file, inside(checkpoint, path.name), path), total_s=patience_s)
                path.unlink()
        index = replace(index, files=tuple(files))
    except (OSError, StorageError) as error:
        index = replace(index, error=_reason(error, folder))
        for path in folder.glob(shard_name(rank, "*")):
            path.unlink(missing_ok=True)  # the file is useless, and the space is needed
    try:
        patiently(lambda: store.put(inside(checkpoint, index_name(rank)), index.to_json()), total_s=patience_s)
    except StorageError as error:
        raise not_written(rank, index.error or _reason(error, folder)) from error
    return index


def not_written(rank: int, reason: str) -> StorageError:
    """The error for people."""
    return StorageError(
        f"a checkpoint could not be written by rank {rank}: {reason}",
        "free some space or lower checkpoint.keep (earlier checkpoints are untouched); then try again",
    )


def _reason(error: Exception, folder: Path) -> str:
    free_gb = shutil.disk_usage(next(path for path in (folder, *folder.parents) if path.exists())).free / 1e9
    cause = error.cause if isinstance(error, StorageError) else f"cannot write to {folder}: {getattr(error, 'strerror', None) or error}"
    return f"{cause} ({free_gb:.2f} GB free here)"


class Background:
    """Runs one function at a time, in a thread. Its error is kept until `take_error`."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self.last_s = 0.0
        """Duration of the last function."""

    @property
    def busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self, work: Callable[[], None]) -> None:
        """Start `work`. Must not be busy."""
        self._error = None

        def run() -> None:
            began = time.monotonic()
            try:
                work()
            except Exception as error:  # noqa: BLE001 - kept for take_error
                self._error = error
            self.last_s = time.monotonic() - began

        self._thread = threading.Thread(target=run, name="tuneyard-checkpoint", daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float | None = None) -> None:
        if self._thread is not None:
            self._thread.join(timeout_s)

    def take_error(self) -> Exception | None:
        """The error of the last function; returned once."""
        error, self._error = self._error, None
        return error
