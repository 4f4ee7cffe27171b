"""Pointers that version control leaves in the place of large files, under the files' own names, until it fetches them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tuneyard.api.errors import BadInput


@dataclass(frozen=True)
class Pointer:
    """`head`: its first bytes. `tool`: what wrote it. `fetch`: the command that puts the file in its place."""

    head: bytes
    tool: str
    fetch: str

    @property
    def advice(self) -> str:
        return f"fetch the file in its repository: {self.fetch}"


POINTERS = (
    Pointer(b"version https://git-lfs.github.com/", "Git LFS", "git lfs pull"),
    Pointer(b"/annex/objects/", "git-annex", "git annex get"),
)
MOST_BYTES = 1024
"""Pointers are smaller."""


def pointer_in(head: bytes) -> Pointer | None:
    """The pointer that a file with these first bytes is; None: it is none."""
    return next((each for each in POINTERS if head.startswith(each.head)), None)


def refuse_pointers(folder: Path | str) -> None:
    """Raises BadInput where a file of a local folder is a pointer. Files that cannot be read are left to their readers."""
    for file in sorted(Path(folder).glob("*")):
        with suppress(OSError):
            if file.is_file() and file.stat().st_size < MOST_BYTES and (found := pointer_in(file.read_bytes())):
                raise BadInput(f"{file}: a pointer of {found.tool}, not the file itself", found.advice)
