"""The process that reads remote files for a fork (`fork_reader`): ranges that are asked for on stdin, one after the other.

python -P -m tuneyard.data.fork_reading
"""

from __future__ import annotations

import os
import pickle
from typing import IO, TYPE_CHECKING, Any

from tuneyard.data.opening import open_found

if TYPE_CHECKING:
    from tuneyard.data.file_types import FoundFile


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
