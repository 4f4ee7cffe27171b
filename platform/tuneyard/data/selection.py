"""Selects the data files among all files of a folder: files of one split and of compatible types, each with its type."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import PurePosixPath

from tuneyard.api import BadInput
from tuneyard.data.file_types import ENDINGS, DataFile, FoundFile, kind_by_ending, recognise
from tuneyard.data.foreign.unread_types import unread_by_name
from tuneyard.storage import MANIFEST

_SPLITS = {"train": "train", "test": "test"} | dict.fromkeys(("validation", "valid", "val", "dev"), "validation")
_METADATA = {"dataset_info.json", "state.json", "dataset_infos.json", "dataset_dict.json", MANIFEST}
_HEADS_AT_ONCE = 16
"""Objects whose first bytes are read concurrently, where endings do not give the types."""


@dataclass(frozen=True)
class Located:
    """The files of a URI in a fixed order: all hold rows with columns, or all hold text lines. `notes`: files left out, with the reason."""

    uri: str
    files: tuple[DataFile, ...]
    notes: tuple[str, ...] = ()

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @property
    def kinds(self) -> str:
        """The type of the files: `parquet`, `jsonl (gzip)`. Several types have numbers of files: `jsonl (gzip): 3, parquet: 2`."""
        counts = Counter(f"{file.kind} ({file.compression})" if file.compression else file.kind for file in self.files)
        return next(iter(counts)) if len(counts) == 1 else ", ".join(f"{kind}: {count}" for kind, count in sorted(counts.items()))


def select(uri: str, found: Sequence[FoundFile], file_type: str, split: str | None) -> Located:
    """The data files among `found`, in order of their paths.

    Files with columns (tables and JSON of all types) may be mixed. Beside them, files of text lines are left out: they have no columns.
    Raises BadInput: no data file, an unknown type.
    """
    files = sorted(found, key=lambda file: file.path.split("/"))
    if len(files) > 1:
        files = [file for file in files if PurePosixPath(file.path).name != MANIFEST]  # written by Tuneyard; never data, whatever the type
    notes: tuple[str, ...] = ()
    if file_type in ("auto", "arrow", "hf") and len(files) > 1:
        files, notes = _by_ending(files)
    if not files:
        raise BadInput(
            f"{uri}: holds no data file", f"data files end in {', '.join(ENDINGS)} (.gz, .zst and .bz2 too), or set data.fileType"
        )
    files, left_out = _of_one_split(uri, files, split)
    notes += left_out
    empty = [file for file in files if file.size_bytes == 0]
    if 0 < len(empty) < len(files):
        notes += (f"{len(empty)} empty files are left out, such as {empty[0].uri}",)
        files = [file for file in files if file.size_bytes > 0]
    return Located(uri, tuple(_recognised(files, file_type)), notes)


def _by_ending(files: list[FoundFile]) -> tuple[list[FoundFile], tuple[str, ...]]:
    """Files with endings of data files, and notes. Texts beside tables (README.txt) are no data."""
    kinds = [(file, kind_by_ending(file.path)[0]) for file in files if PurePosixPath(file.path).name not in _METADATA]
    known = [file for file, kind in kinds if kind is not None]
    unread = [(file, each) for file, kind in kinds if kind is None and (each := unread_by_name(file.path))]
    notes = tuple(f"{unread[0][0].uri} is left out: {unread[0][1].what}, which is not read" for _ in unread[:1])
    if len(unread) > 1:
        notes = (f"{len(unread)} files of types that are not read are left out, such as {unread[0][0].uri}: {unread[0][1].what}",)
    columns = [file for file, kind in kinds if kind not in (None, "text")]
    texts = [file for file, kind in kinds if kind == "text"]
    if not columns or not texts:
        return known, notes
    files_are = "1 text file is" if len(texts) == 1 else f"{len(texts)} text files are"
    return columns, (*notes, f"{files_are} left out beside files with columns, such as {texts[0].uri}")


def _recognised(files: Sequence[FoundFile], file_type: str) -> list[DataFile]:
    # Each look opens a file, and of an object it is a request. Files of one ending are of one notation, and are all pointers or none,
    # unless the first says otherwise.
    first = {kind_by_ending(file.path)[0]: file for file in reversed(files)}
    looked = {ending for ending, file in first.items() if recognise(file, file_type).kind != "jsonl"}

    def recognised(file: FoundFile) -> DataFile:
        return recognise(file, file_type, look=kind_by_ending(file.path)[0] in looked, may_be_pointer=False)

    if len(files) == 1 or files[0].fs is None:
        return [recognised(file) for file in files]
    with ThreadPoolExecutor(_HEADS_AT_ONCE) as pool:
        return list(pool.map(recognised, files))


def _of_one_split(uri: str, found: list[FoundFile], split: str | None) -> tuple[list[FoundFile], tuple[str, ...]]:
    """The files of one split, and notes. Splits are found by file names (train-00000-of-00002.parquet, test.jsonl); default: `train`."""
    names = [_SPLITS.get(re.split(r"[-_.]", PurePosixPath(file.path).name)[0]) for file in found]
    splits = sorted({name for name in names if name is not None})
    if len(found) == 1 or (split is None and ("train" not in splits or len(splits) < 2)):
        return found, ()
    wanted = _SPLITS.get(split or "train", split)
    chosen = [file for file, name in zip(found, names, strict=True) if name == wanted]
    if not chosen:
        raise BadInput(f"{uri}: no file of the split {split}", f"splits by file names: {', '.join(splits) or 'none'}")
    left_out = len(found) - len(chosen)
    return chosen, (f"only files of the split {wanted} are used; {left_out} others are left out",) if left_out else ()
