"""Errors of a program's own code, for people: the failed function, the line in the user's code, and the error."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tuneyard.api import BadInput, TuneyardError
from tuneyard.training.lost_peer import is_collateral
from tuneyard.training.memory import is_out_of_memory


@contextmanager
def blamed(what: str, folder: Path, next_step: str = "") -> Iterator[None]:
    """Raises BadInput for errors of the code inside, `sys.exit` included, with the innermost line of the traceback below `folder`, which is
    the program's.

    Tuneyard's errors, out-of-memory errors and lost peers pass unchanged: they have their own messages and retries.
    """
    try:
        yield
    except TuneyardError:
        raise
    except (Exception, SystemExit) as error:
        if is_out_of_memory(error) or is_collateral(str(error)):
            raise
        raise BadInput(f"{what} failed: {said(error)}{where(error, folder)}", next_step or "correct the program") from error


def said(error: BaseException) -> str:
    """Type and first lines of an error."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__


def where(error: BaseException, folder: Path) -> str:
    """`, at captions.py line 12: x = rows[0]["image"]`: the innermost line of the program itself; empty if there is none."""
    if isinstance(error, SyntaxError) and error.filename:
        return f", at {Path(error.filename).name} line {error.lineno}: {(error.text or '').strip()}"
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_below(frame.filename, folder)]
    return f", at {Path(own[-1].filename).name} line {own[-1].lineno}: {own[-1].line}" if own else ""


def _is_below(file: str, folder: Path) -> bool:
    try:
        return Path(file).resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError):
        return False
