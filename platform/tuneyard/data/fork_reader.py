"""Reads remote files for a process that is a fork, such as a data worker: clients of remote stores do not survive a fork (`storage.forks`).

Each fork that reads starts a process of its own, asks it for ranges through pipes, and takes it along when it ends.

    python -P -m tuneyard.data.fork_reader
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from typing import IO, TYPE_CHECKING, Any

from tuneyard.api import StorageError

if TYPE_CHECKING:
    from tuneyard.data.file_types import FoundFile

_readers: dict[int, _Reader] = {}
"""By process id: a fork of a fork has a reader of its own."""


def read_range(found: FoundFile, position: int, size: int) -> bytes:
    """`size` bytes of a remote file from `position` on, and fewer at its end. Raises what `open_found` and its file raise."""
    reader = _readers.get(os.getpid())
    if reader is None or reader.has_ended:
        reader = _readers[os.getpid()] = _Reader()
    return reader.read(found, position, size)


class _Reader:
    """The process that reads, as the fork sees it. Threads of the fork take turns."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        command = [sys.executable, "-P", "-m", "tuneyard.data.fork_reader"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def read(self, found: FoundFile, position: int, size: int) -> bytes:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._turn:
            try:
                pickle.dump((found, position, size), self._process.stdin)
                self._process.stdin.flush()
                answer: bytes | Exception = pickle.load(self._process.stdout)
            except (OSError, EOFError) as error:
                raise StorageError(f"{found.uri}: the process that reads it has ended", "start the task again") from error
            except BaseException:
                self._process.kill()  # the next answer would be that of this request
                raise
        if isinstance(answer, Exception):
            raise answer
        return answer


# --- in the process that reads


def main() -> None:
    # Answers go to the stdout of the start: what libraries print goes to stderr.
    asked, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    file: tuple[FoundFile, IO[bytes]] | None = None
    while True:  # one request after the other
        try:
            found, position, size = pickle.load(asked)
        except EOFError:  # the fork has ended
            return
        answer: bytes | Exception
        try:
            file = _opened(found, file)
            file[1].seek(position)
            answer = file[1].read(size)
        except Exception as error:  # noqa: BLE001  raised in the fork
            file = None
            answer = _portable(error)
        pickle.dump(answer, answers)
        answers.flush()


def _opened(found: FoundFile, before: tuple[FoundFile, IO[bytes]] | None) -> tuple[FoundFile, IO[bytes]]:
    """The file, opened again only if it is another than before."""
    from tuneyard.data.opening import open_found

    if before is not None and (before[0].uri, before[0].version) == (found.uri, found.version):
        return before
    if before is not None:
        before[1].close()
    return found, open_found(found)


def _portable(error: Exception) -> Exception:
    """The error, or one with its words where it cannot be pickled."""
    try:
        copy: Any = pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001  any class of any library
        return OSError(f"{type(error).__name__}: {error}")
    return error if type(copy) is type(error) and str(copy) == str(error) else OSError(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
