"""The process that reads remote files for a fork (`fork_reader`): ranges that are asked for on stdin, several at the same time.

python -P -m tuneyard.data.fork_reading
"""

from __future__ import annotations

import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import IO, TYPE_CHECKING, Any

from tuneyard.data.opening import open_found

if TYPE_CHECKING:
    from tuneyard.data.file_types import FoundFile

AT_ONCE = 16
"""As many as readers ask for: `reading_ahead` and `tables.ranges`."""


def main() -> None:
    # Answers go to the stdout of the start: what libraries print goes to stderr.
    asked, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    reading = _Reading(answers)
    pool = ThreadPoolExecutor(AT_ONCE)
    while True:
        try:
            request = pickle.load(asked)
        except EOFError:  # the fork has ended, and nobody waits for the reads in flight
            os._exit(0)
        pool.submit(reading.answer, *request)


class _Reading:
    """Each thread keeps its last file open."""

    def __init__(self, answers: IO[bytes]) -> None:
        self._answers = answers
        self._turn = threading.Lock()
        self._own = threading.local()

    def answer(self, number: int, found: FoundFile, position: int, size: int) -> None:
        answer: bytes | Exception
        try:
            file = self._opened(found)
            file.seek(position)
            answer = file.read(size)
        except Exception as error:  # noqa: BLE001  raised in the fork
            self._own.file = None
            answer = _portable(error)
        with self._turn:
            pickle.dump((number, answer), self._answers)
            self._answers.flush()

    def _opened(self, found: FoundFile) -> IO[bytes]:
        """The file, opened again only if it is another than this thread has read before."""
        before: tuple[FoundFile, IO[bytes]] | None = getattr(self._own, "file", None)
        if before is not None and (before[0].uri, before[0].version) == (found.uri, found.version):
            return before[1]
        if before is not None:
            before[1].close()
        file = open_found(found)
        self._own.file = found, file
        return file


def _portable(error: Exception) -> Exception:
    """The error, or one with its words where it cannot be pickled."""
    try:
        copy: Any = pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001  any class of any library
        return OSError(f"{type(error).__name__}: {error}")
    return error if type(copy) is type(error) and str(copy) == str(error) else OSError(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
