"""Errors of storage for people: the cause, the next step, and never a secret."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from tuneyard.api import StorageError
from tuneyard.api.secrets import redact

_LONGEST_CAUSE = 300

_NEXT_STEP_BY_ERRNO = {
    errno.ENOSPC: "free space there, or write elsewhere with --out; earlier commits are intact",
    errno.EDQUOT: "the quota is used up: free space there, or write elsewhere with --out; earlier commits are intact",
    errno.EACCES: "give this user write access to the folder, or write elsewhere with --out",
    errno.EPERM: "give this user write access to the folder, or write elsewhere with --out",
    errno.EEXIST: "a file lies where a folder is needed: remove it, or write elsewhere with --out",
    errno.ENOTDIR: "a file lies where a folder is needed: remove it, or write elsewhere with --out",
    errno.EROFS: "the file system is mounted read-only: write elsewhere with --out",
}


class NotFound(StorageError):
    """The path does not exist."""


class AlreadyExists(StorageError):
    """`create` has failed because the path exists."""


def shortened(error: BaseException) -> str:
    """The error's first line without secrets, short enough for a terminal."""
    text = redact(" ".join(str(error).split()) or type(error).__name__)
    return text if len(text) <= _LONGEST_CAUSE else text[:_LONGEST_CAUSE] + "…"


@contextmanager
def os_errors(uri: str, doing: str) -> Iterator[None]:
    """Raises StorageError in place of an OSError. `doing`: the failed operation on `uri`, such as "read"."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFound(f"cannot {doing} {redact(uri)}: {error.strerror or shortened(error)}", "check the path") from error
    except OSError as error:
        next_step = _NEXT_STEP_BY_ERRNO.get(error.errno or 0, "check the disk and the path; then try again")
        raise StorageError(f"cannot {doing} {redact(uri)}: {error.strerror or shortened(error)}", next_step) from error
