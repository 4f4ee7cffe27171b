"""Local files and folders that appear whole or not at all: written under a temporary name beside their place, then renamed."""

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
    """An unused name beside `path`, on the same file system, that tells which process uses it."""
    return path.with_name(f".{path.name}.tmp-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}")


def is_temporary(name: str) -> bool:
    """True for names that `temporary_sibling` makes."""
    return _TEMPORARY.match(name) is not None


def remove_stale_siblings(path: Path) -> None:
    """Remove what processes of this machine that are gone had begun to write in place of `path`."""
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
    """Remove a file or a folder; nothing happens where there is none."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def sync_folder(path: Path) -> None:
    """Make the names in a folder survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def as_umask_says(folder: Path) -> None:
    """Give everything in a folder the mode that this process's umask gives new files; programs stay executable.

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
    """`chunks` as they are. Raises StorageError at their end unless they were `size_bytes` long: their source was changing."""
    seen_bytes = 0
    for chunk in chunks:
        seen_bytes += len(chunk)
        yield chunk
    if seen_bytes != size_bytes:
        raise StorageError(
            f"{name} was to have {size_bytes} bytes and had {seen_bytes}: it changed while it was stored",
            "let the program that writes it end first",
        )


@contextmanager
def staged_file(path: Path, *, replace: bool = True) -> Iterator[BinaryIO]:
    """A file to write that takes its place at `path`, durable and whole, when the block ends without an error.

    Raises FileExistsError at the end where `replace` is false and `path` exists by then.
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
    """A new folder to fill that takes the place of `path` when the block ends without an error, and vanishes otherwise."""
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
    """Rename `staged` to `path`; a folder that was there is moved aside first and then removed."""
    sync_folder(staged)
    before = temporary_sibling(path)
    if path.exists():
        path.rename(before)
    staged.rename(path)
    sync_folder(path.parent)
    remove(before)
