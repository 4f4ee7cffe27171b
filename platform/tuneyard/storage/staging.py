"""A place for a folder that is not finished yet."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tuneyard.storage.files import remove_stale_siblings, temporary_sibling
from tuneyard.storage.uris import is_local, local_path


@contextmanager
def staging(target: str, scratch: Path) -> Iterator[Path]:
    """A path for the unfinished folder of `target`: beside a local one, so that a rename completes it, else in `scratch`."""
    if not is_local(target):
        yield scratch / "out"
        return
    final = local_path(target).absolute()
    remove_stale_siblings(final)
    staged = temporary_sibling(final)
    try:
        yield staged
    finally:
        shutil.rmtree(staged, ignore_errors=True)
