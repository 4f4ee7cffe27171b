"""Where samples come from: a path or URI becomes a list of files of one type, in a fixed order.

Local files, folders and globs, file://, s3:// and gs:// (obstore), hdfs:// and webhdfs:// (fsspec), hf://owner/name[/config].
A Hugging Face data set is what `datasets` downloads, or a folder it saved: in both cases Arrow files, read like any others.
"""

from __future__ import annotations

import difflib
import fnmatch
import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from tuneyard.api import BadInput
from tuneyard.data.access import SCHEMES, filesystem, first_line, reading
from tuneyard.data.file_types import ENDINGS, DataFile, FoundFile, kind_by_ending, local_mark, recognise
from tuneyard.storage import MANIFEST

_SPLITS = {"train": "train", "test": "test"} | dict.fromkeys(("validation", "valid", "val", "dev"), "validation")
_METADATA = {"dataset_info.json", "state.json", "dataset_infos.json", "dataset_dict.json", MANIFEST}
_SPLIT_FOLDERS = "dataset_dict.json"
_PATTERN = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class Located:
    """What a URI stands for: files of one kind, sorted. `notes` say what was left out, and why."""

    uri: str
    files: tuple[DataFile, ...]
    notes: tuple[str, ...] = ()

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def locate(uri: str, *, file_type: str = "auto", split: str | None = None) -> Located:
    """Find the files that `uri` stands for.

    Raises BadInput: nothing there (naming what is near), no data file, several types mixed, an unknown type, no access.
    """
    scheme, _, rest = uri.partition("://")
    if not rest:
        return _locate_local(uri, Path(uri).expanduser(), file_type, split)
    if scheme == "file":
        return _locate_local(uri, Path("/" + rest.removeprefix("localhost/").lstrip("/")), file_type, split)
    if scheme == "hf":
        return _locate_hub(uri, rest, split)
    if scheme not in SCHEMES:
        near = difflib.get_close_matches(scheme, [*SCHEMES, "hf", "file"], n=1, cutoff=0.5)
        raise BadInput(
            f"{uri}: {scheme}:// is not a kind of source{f' (did you mean {near[0]}://?)' if near else ''}",
            "use a local path, file://, s3://, gs://, hdfs://, webhdfs:// or hf://owner/name",
        )
    return _locate_remote(uri, SCHEMES[scheme], file_type, split)


# --- local ------------------------------------------------------------------------------------------------------------------------


def _locate_local(uri: str, path: Path, file_type: str, split: str | None) -> Located:
    with reading(uri):
        if path.is_file():
            return Located(uri, (recognise(_found(path), file_type),))
        if path.is_dir():
            return _locate_folder(uri, path, file_type, split)
        if _PATTERN.search(str(path)):
            pattern = str(path.relative_to(path.anchor))
            found = [_found(p) for p in sorted(Path(path.anchor or ".").glob(pattern)) if p.is_file()]
            if found:
                return _of_one_kind(uri, found, file_type, None)
            raise BadInput(f"{uri}: no file matches this pattern", _what_is_near(path))
    raise BadInput(f"{uri}: no such file or folder", _what_is_near(path))


def _found(path: Path) -> FoundFile:
    return FoundFile(str(path), str(path), path.stat().st_size, mark=local_mark(str(path)))


def _what_is_near(path: Path) -> str:
    folder, name = path.absolute().parent, path.name
    while not folder.is_dir() and folder != folder.parent:
        folder, name = folder.parent, folder.name
    names = sorted(p.name for p in folder.iterdir() if not p.name.startswith(".")) if os.access(folder, os.R_OK) else []
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if near:
        return f"did you mean {' or '.join(near)}? (in {folder})"
    return f"{folder} holds: {', '.join(names[:8])}{', …' if len(names) > 8 else ''}" if names else f"{folder} is empty"


def _locate_folder(uri: str, folder: Path, file_type: str, split: str | None) -> Located:
    if (folder / _SPLIT_FOLDERS).is_file():  # datasets.DatasetDict.save_to_disk: one folder per split
        chosen = folder / (split or "train")
        if not chosen.is_dir():
            splits = ", ".join(sorted(p.name for p in folder.iterdir() if p.is_dir()))
            raise BadInput(f"{uri}: no split named {split or 'train'}", f"set data.split to one of: {splits}")
        return _locate_folder(str(chosen), chosen, file_type, None)
    visible = (p for p in sorted(folder.rglob("*")) if not any(part[0] in "._" for part in p.relative_to(folder).parts))
    return _of_one_kind(uri, [_found(p) for p in visible if p.is_file()], file_type, split)


# --- remote -----------------------------------------------------------------------------------------------------------------------


def _locate_remote(uri: str, scheme: str, file_type: str, split: str | None) -> Located:
    rest = uri.partition("://")[2]
    host = rest.partition("/")[0]
    path = f"/{rest.partition('/')[2]}" if scheme in ("hdfs", "webhdfs") else rest
    prefix = uri[: len(uri) - len(path)]  # what turns the store's path back into a URI
    with reading(uri):
        fs = filesystem(scheme, host)
        rows = _list_remote(fs, path)
        if f"{path.rstrip('/')}/{_SPLIT_FOLDERS}" in rows:
            rows, split = _split_folder(uri, path.rstrip("/"), rows, split), None
        found = [FoundFile(prefix + name, name, int(row.get("size") or 0), _etag(row), fs) for name, row in sorted(rows.items())]
        if not found:
            raise BadInput(f"{uri}: nothing is there", "check bucket, path and spelling")
        return _of_one_kind(uri, found, file_type, split)


def _list_remote(fs: Any, path: str) -> dict[str, dict[str, Any]]:
    """Path -> what the listing says, without hidden files (such as _SUCCESS)."""
    if fs.isfile(path):
        return {path: fs.info(path)}
    pattern = _PATTERN.search(path)
    folder = path[: pattern.start()].rpartition("/")[0] if pattern else path.rstrip("/")
    listed = {("/" if path.startswith("/") else "") + name.lstrip("/"): row for name, row in fs.find(folder, detail=True).items()}
    if pattern:
        return {name: row for name, row in listed.items() if fnmatch.fnmatchcase(name, path)}
    return {name: row for name, row in listed.items() if not any(part[:1] in (".", "_") for part in name[len(folder) :].split("/"))}


def _split_folder(uri: str, path: str, rows: dict[str, dict[str, Any]], split: str | None) -> dict[str, dict[str, Any]]:
    """Of what `datasets.DatasetDict.save_to_disk` has written, the files of one split."""
    chosen = {name: row for name, row in rows.items() if name.startswith(f"{path}/{split or 'train'}/")}
    if not chosen:
        splits = sorted({name[len(path) + 1 :].partition("/")[0] for name in rows if "/" in name[len(path) + 1 :]})
        raise BadInput(f"{uri}: no split named {split or 'train'}", f"set data.split to one of: {', '.join(splits)}")
    return chosen


def _etag(row: dict[str, Any]) -> str:
    return str(row.get("e_tag") or row.get("ETag") or row.get("modificationTime") or row.get("mtime") or "")


# --- Hugging Face -----------------------------------------------------------------------------------------------------------------


def _locate_hub(uri: str, rest: str, split: str | None) -> Located:
    import datasets

    parts = rest.removeprefix("datasets/").strip("/").split("/")
    if len(parts) > 3 or not all(parts):
        raise BadInput(f"{uri}: not the name of a Hugging Face data set", "write hf://owner/name, or hf://owner/name/config")
    name, config = "/".join(parts[:2]), parts[2] if len(parts) == 3 else None
    try:
        data = datasets.load_dataset(name, config, split=split or "train")
    except (OSError, ValueError) as error:
        raise BadInput(
            f"{uri}: {first_line(error)}",
            "check name, config and split; private sets need HF_TOKEN; without network, point source at a local copy",
        ) from error
    files = [_found(Path(cached["filename"])) for cached in data.cache_files]
    return Located(uri, tuple(DataFile(file, "arrow") for file in files))


# --- of one type, of one split ----------------------------------------------------------------------------------------------------


def _of_one_kind(uri: str, found: list[FoundFile], file_type: str, split: str | None) -> Located:
    """Keep the data files and check that they are of one kind. Texts beside tables (README.txt) are no data."""
    if len(found) > 1:
        found = [file for file in found if PurePosixPath(file.path).name != MANIFEST]  # ours, whatever type the data are said to be
    if file_type in ("auto", "hf") and len(found) > 1:
        data = [file for file in found if PurePosixPath(file.path).name not in _METADATA]
        known = [file for file in data if kind_by_ending(file.path)[0] is not None]
        found = [file for file in known if kind_by_ending(file.path)[0] != "text"] or known
    if not found:
        raise BadInput(
            f"{uri}: holds no data file", f"data files end in {', '.join(ENDINGS)} (.gz, .zst and .bz2 too), or set data.fileType"
        )
    chosen, notes = _of_one_split(uri, found, split)
    empty = [file for file in chosen if file.size_bytes == 0]
    if 0 < len(empty) < len(chosen):
        notes = (*notes, f"{len(empty)} empty files are left out, such as {empty[0].uri}")
        chosen = [file for file in chosen if file.size_bytes > 0]
    files = [recognise(file, file_type) for file in chosen]
    kinds = Counter(file.kind for file in files)
    if len(kinds) > 1:
        counts = ", ".join(f"{kind} ({count})" for kind, count in sorted(kinds.items()))
        raise BadInput(f"{uri}: holds files of several types: {counts}", f"point at one of them, such as {uri.rstrip('/')}/*.{min(kinds)}")
    return Located(uri, tuple(files), notes)


def _of_one_split(uri: str, found: list[FoundFile], split: str | None) -> tuple[list[FoundFile], tuple[str, ...]]:
    """A folder whose files are named after splits (train-00000-of-00002.parquet, test.jsonl) gives one: `train` unless asked."""
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
