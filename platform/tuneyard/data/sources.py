"""Sources of samples: a path or URI becomes a list of files in a fixed order.

Sources: local files, folders and globs, file://, s3:// and gs:// (obstore), hdfs:// and webhdfs:// (fsspec), hf://owner/name[/config], and
Delta and Iceberg tables in folders. A Hugging Face data set is downloaded by `datasets`, or is a folder that `datasets` saved: Arrow files
in both cases.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tuneyard.api import BadInput
from tuneyard.data.access import SCHEMES, first_line, reading
from tuneyard.data.file_types import DataFile, FoundFile, recognise
from tuneyard.data.globs import is_pattern, local_matches
from tuneyard.data.lake_tables import DELTA_LOG, ICEBERG_METADATA, Folder, is_metadata_file, open_table, table_in
from tuneyard.data.opening import local_mark
from tuneyard.data.remote_listing import RemoteListing, list_remote
from tuneyard.data.selection import Located, select

__all__ = ["Located", "locate"]

_SPLIT_FOLDERS = "dataset_dict.json"


def locate(uri: str, *, file_type: str = "auto", split: str | None = None, sheet: str | None = None) -> Located:
    """Find the files of `uri`. `sheet`: of workbooks.

    Raises BadInput: a missing path (with similar names), no data file, an unknown type, a table whose Parquet files alone do not give the
    rows, no access.
    """
    found = _locate(uri, file_type, split)
    if sheet is None:
        return found
    if not any(file.kind == "excel" for file in found.files):
        raise BadInput(f"{uri}: data.sheet is {sheet}, and there is no workbook", "remove data.sheet")
    return replace(found, files=tuple(replace(file, sheet=sheet) if file.kind == "excel" else file for file in found.files))


def _locate(uri: str, file_type: str, split: str | None) -> Located:
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
            f"{uri}: {scheme}:// is not a known scheme{f' (did you mean {near[0]}://?)' if near else ''}",
            "use a local path, file://, s3://, gs://, hdfs://, webhdfs:// or hf://owner/name",
        )
    return _locate_remote(uri, SCHEMES[scheme], file_type, split)


# --- local ------------------------------------------------------------------------------------------------------------------------


def _locate_local(uri: str, path: Path, file_type: str, split: str | None) -> Located:
    with reading(uri):
        if path.is_file() and is_metadata_file(path.as_posix()):
            return _local_table(uri, path.parent.parent, path.name)
        if path.is_file():
            return Located(uri, (recognise(_found(path), file_type),))
        if path.is_dir():
            return _locate_folder(uri, path, file_type, split)
        if is_pattern(str(path)):
            found = local_matches(str(path))
            for folder in sorted({parent for match in found for parent in match.parents}):
                if table_in(path.relative_to(folder).as_posix() for path in _signs_of_tables(folder)):
                    raise _inside_a_table(uri, str(folder))
            if found:
                return select(uri, [_found(match) for match in found], file_type, None)
            raise BadInput(f"{uri}: no file matches this pattern", _what_is_near(path))
    raise BadInput(f"{uri}: no such file or folder", _what_is_near(path))


def _found(path: Path) -> FoundFile:
    return _local(str(path))


def _local(path: str) -> FoundFile:
    mark = local_mark(path)
    return FoundFile(path, path, int(mark.partition(" ")[0]), mark=mark)


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
    if table_in(path.relative_to(folder).as_posix() for path in _signs_of_tables(folder)):
        return _local_table(uri, folder, None)
    return select(uri, list(_visible_files(uri, str(folder))), file_type, split)


def _signs_of_tables(folder: Path) -> Iterator[Path]:
    yield from (folder / DELTA_LOG).glob("*")
    yield from (folder / ICEBERG_METADATA).glob("*")


def _visible_files(uri: str, folder: str) -> Iterator[FoundFile]:
    """Files below a folder. Names that start with . or _ are skipped; links to folders are not followed.

    Raises BadInput for a table in a subfolder: its folder also holds deleted rows.
    """
    below = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name == DELTA_LOG:
                raise _inside_a_table(uri, folder)
            if entry.name[0] in "._":
                continue
            if entry.is_dir(follow_symlinks=False):
                below.append(entry.path)
            elif entry.is_file():
                if is_metadata_file(entry.path):
                    raise _inside_a_table(uri, os.path.dirname(folder))
                yield _local(entry.path)
    for each in below:
        yield from _visible_files(uri, each)


def _inside_a_table(uri: str, table: str) -> BadInput:
    return BadInput(f"{uri}: {table} is a table, and its folder also holds deleted rows", f"point data.source at the table itself: {table}")


def _local_table(uri: str, folder: Path, metadata_file: str | None) -> Located:
    def find(path: str) -> FoundFile:
        return _found(Path(path) if path.startswith("/") else folder / path)

    names = tuple(path.relative_to(folder).as_posix() for path in _signs_of_tables(folder))
    table = Folder(str(folder.absolute()), names, lambda path: Path(find(path).path).read_bytes(), find)
    return _of_table(uri, table, metadata_file)


def _of_table(uri: str, folder: Folder, metadata_file: str | None) -> Located:
    files, note = open_table(uri, folder, metadata_file)
    found = sorted(files, key=lambda each: each[0].path.split("/"))
    return Located(uri, tuple(DataFile(file, "parquet", part=part) for file, part in found), (note,) if note else ())


# --- remote -----------------------------------------------------------------------------------------------------------------------


def _locate_remote(uri: str, scheme: str, file_type: str, split: str | None) -> Located:
    with reading(uri):
        listing = list_remote(uri, scheme)
        if not listing.found:
            raise BadInput(f"{uri}: nothing is there", "check the bucket, the path and the spelling")
        if is_metadata_file(listing.path):
            table, _, name = listing.path.rpartition("/")
            above = uri.rpartition("/")[0].rpartition("/")[0]
            return _of_table(uri, _remote_folder(list_remote(above, scheme), table.rpartition("/")[0]), name)
        if not is_pattern(listing.path) and table_in(listing.below()):
            return _of_table(uri, _remote_folder(listing, listing.path), None)
        for file in listing.found:
            delta = next((table for table in listing.delta_tables if file.path.startswith(f"{table}/")), None)
            if delta is not None or is_metadata_file(file.path):
                raise _inside_a_table(uri, listing.uri_of(delta or file.path.rpartition(f"/{ICEBERG_METADATA}/")[0]))
        if f"{listing.path}/{_SPLIT_FOLDERS}" in (file.path for file in listing.found):
            listing, split = _split_folder(uri, listing, split), None
        return select(uri, listing.visible(), file_type, split)


def _split_folder(uri: str, listing: RemoteListing, split: str | None) -> RemoteListing:
    """The files of one split in a folder that `datasets.DatasetDict.save_to_disk` has written."""
    start = f"{listing.path}/"
    chosen = tuple(file for file in listing.found if file.path.startswith(f"{start}{split or 'train'}/"))
    if not chosen:
        splits = sorted({name.partition("/")[0] for name in listing.below() if "/" in name})
        raise BadInput(f"{uri}: no split named {split or 'train'}", f"set data.split to one of: {', '.join(splits)}")
    return replace(listing, found=chosen)


def _remote_folder(listing: RemoteListing, path: str) -> Folder:
    by_path = {file.path: file for file in listing.found}

    def find(name: str) -> FoundFile:
        full = listing.path_of(name) if "://" in name else f"{path}/{name}"
        if full not in by_path:
            raise FileNotFoundError(full)
        return by_path[full]

    def read(name: str) -> bytes:
        with DataFile(find(name), "json").open_raw() as stream:
            return stream.read()

    return Folder(listing.uri_of(path), tuple(listing.below()), read, find)


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
