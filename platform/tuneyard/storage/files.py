"""Atomic writes of local files and folders: written under a temporary name in the same folder, then renamed."""

from __future__ import annotations

import os
import re
import shutil
import socket
import stat
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tuneyard.api import StorageError

CHUNK_BYTES = 4 << 20

_TEMPORARY = re.compile(r"^\..+\.tmp-(?P<host>.+)-(?P<pid>\d+)-[0-9a-f]{8}$")


def temporary_sibling(path: Path) -> Path:
    """An unused name beside `path`, on the same file system. It contains host and process id."""
    return path.with_name(f".{path.name}.tmp-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}")


def is_temporary(name: str) -> bool:
    """Whether a name was made by `temporary_sibling`."""
    return _TEMPORARY.match(name) is not None


def remove_stale_siblings(path: Path) -> None:
    """Remove temporary siblings of `path` whose processes, on this machine, have ended."""
    for sibling in path.parent.glob(f".{path.name}.tmp-*"):
        match = _TEMPORARY.match(sibling.name)
        if match and match["host"] == socket.gethostname() and not _is_alive(int(match["pid"])):
            remove(sibling)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def remove(path: Path) -> None:
    """Remove a file or a folder, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def sync_folder(path: Path) -> None:
    """Sync the directory entries of a folder, so that they survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def as_umask_says(folder: Path) -> None:
    """Give all files and folders below `folder` the mode that this process's umask gives new ones. Executables stay executable.

    Some libraries (safetensors) write files that only their owner may read.
    """
    probe = temporary_sibling(folder)
    probe.mkdir()
    allowed = probe.stat().st_mode & 0o777
    probe.rmdir()
    for path in folder.rglob("*"):
        if path.is_symlink():
            continue
        mode = stat.S_IMODE(path.stat().st_mode)
        wanted = allowed if path.is_dir() or mode & stat.S_IXUSR else allowed & 0o666
        if mode & 0o777 != wanted:
            path.chmod(mode & ~0o777 | wanted)


def read_chunks(path: Path) -> Iterator[bytes]:
    """The content of a file, CHUNK_BYTES at a time."""
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def exactly(chunks: Iterable[bytes], size_bytes: int, name: str) -> Iterator[bytes]:
    """`chunks`, unchanged. At the end, raises StorageError unless they were `size_bytes` long: then their source has changed."""
    seen_bytes = 0
    for chunk in chunks:
        seen_bytes += len(chunk)
        yield chunk
    if seen_bytes != size_bytes:
        raise StorageError(
            f"{name} had {seen_bytes} bytes instead of {size_bytes}: it changed while it was stored",
            "wait until the program that writes it has ended",
        )


@contextmanager
def staged_file(path: Path, *, replace: bool = True) -> Iterator[BinaryIO]:
    """A file to write. If the block ends without an error, the file is synced to disk and renamed to `path`.

    Raises FileExistsError at the end of the block if `replace` is false and `path` exists.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = temporary_sibling(path)
    try:
        with staged.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if replace:
            staged.replace(path)
        else:
            os.link(staged, path)
        sync_folder(path.parent)
    finally:
        staged.unlink(missing_ok=True)


@contextmanager
def staged_folder(path: Path) -> Iterator[Path]:
    """A new folder to fill. If the block ends without an error, it replaces `path`; otherwise it is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_stale_siblings(path)
    staged = temporary_sibling(path)
    staged.mkdir()
    try:
        yield staged
        replace_folder(staged, path)
    finally:
        remove(staged)


def replace_folder(staged: Path, path: Path) -> None:
    """Rename `staged` to `path`. An existing folder is moved aside first, and removed afterwards."""
    sync_folder(staged)
    before = temporary_sibling(path)
    if path.exists():
        path.rename(before)
    staged.rename(path)
    sync_folder(path.parent)
    remove(before)
