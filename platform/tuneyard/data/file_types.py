"""One file of a data set, and its type: by its ending, else by its first bytes."""

from __future__ import annotations

import io
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import IO, Any, Literal

import xxhash

from tuneyard.api import BadInput
from tuneyard.api.pointers import MOST_BYTES, pointer_in
from tuneyard.data.decompression import decompressed
from tuneyard.data.encoding import refuse_utf_16
from tuneyard.data.foreign.json_notation import json_notation
from tuneyard.data.foreign.unread_types import unread_by_content, unread_by_name
from tuneyard.data.opening import REMOTE_BLOCK_BYTES, Version, check_unchanged, local_mark, open_found
from tuneyard.data.read_limit import PIECE_BYTES, limit

Kind = Literal["parquet", "jsonl", "json", "csv", "text", "arrow", "excel"]
Compression = Literal["", "gzip", "zstd", "bz2"]

_WORKBOOKS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
ENDINGS: dict[str, Kind] = {
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "text",
    ".text": "text",
    ".arrow": "arrow",
    ".feather": "arrow",
    **dict.fromkeys(_WORKBOOKS, "excel"),
}
COMPRESSED_ENDINGS: dict[str, Compression] = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd", ".bz2": "bz2"}
_MAGIC: dict[bytes, Kind] = {b"PAR1": "parquet", b"ARROW1": "arrow", b"\xff\xff\xff\xff": "arrow"}
_COMPRESSED_MAGIC: dict[bytes, Compression] = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2"}
_BLOCK_BYTES = 1 << 22
_HASHED_WHOLE_BYTES = 1 << 30
_PARTS, _PART_BYTES = 64, 1 << 20
_HEAD_BYTES = 4096
_COMPRESSED_HEAD_BYTES = 1 << 20
"""bz2 packs blocks of 900 KB, which unpack only as a whole."""


@dataclass(frozen=True)
class FoundFile:
    """A file as a listing shows it. `path`: its name in `fs`. `uri`: its name for people.

    `fs`: None for a local file, else a `Bucket` or fsspec's file system. `modified`: of a remote file, as in `Version`.
    """

    uri: str
    path: str
    size_bytes: int
    etag: str = ""
    fs: Any = None
    modified: int = 0
    mark: str = ""
    """Of a local file: metadata that changes with every write (`local_mark`)."""
    content: bytes | None = field(default=None, repr=False, compare=False)
    """The whole content, where it was read ahead."""

    @property
    def version(self) -> Version:
        return Version(self.size_bytes, self.modified, self.etag)


@dataclass(frozen=True)
class TablePart:
    """Metadata of a table about one of its Parquet files.

    `snapshot`: the table's version. `columns`: the table's columns; a file may have more or fewer. `constants`: columns that stand in the
    metadata alone, such as the partition columns of a Delta table.
    """

    snapshot: str
    columns: tuple[str, ...]
    constants: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class DataFile:
    """A file whose type is known."""

    found: FoundFile
    kind: Kind
    compression: Compression = ""
    part: TablePart | None = None
    sheet: str = ""
    """Of a workbook: the sheet; empty: its only one."""

    @property
    def uri(self) -> str:
        return self.found.uri

    @property
    def path(self) -> str:
        return self.found.path

    @property
    def is_local(self) -> bool:
        return self.found.fs is None

    @property
    def size_bytes(self) -> int:
        return self.found.size_bytes

    def open_raw(self) -> IO[bytes]:
        """The stored bytes, seekable. Each read of an object is one request. Raises BadInput if the file has changed since the listing."""
        return open_found(self.found)

    def open_buffered(self, block_bytes: int | None = None) -> IO[bytes]:
        """As `open_raw`, for sequential reads. `block_bytes`: size of one request."""
        raw: Any = self.open_raw()
        return raw if self.is_local else io.BufferedReader(raw, block_bytes or (REMOTE_BLOCK_BYTES if limit() is None else PIECE_BYTES))

    def open(self, block_bytes: int | None = None) -> IO[bytes]:
        """The bytes, decompressed while they are read. `block_bytes`: size of one request to a store."""
        return decompressed(self.open_buffered(block_bytes), self.compression)

    def check_unchanged(self) -> None:
        """Raises BadInput where the file has changed since it was listed."""
        check_unchanged(self.found)

    def identity(self) -> str:
        """A text that changes when the content does, with the version of the table that the file is part of.

        Of a local file: a hash of its bytes; above 1 GiB, its `local_mark` and a hash of 64 parts of 1 MiB. Of a remote file: address, size
        and etag (or time). Raises BadInput where the file has
        changed since it was listed.
        """
        if not self.is_local:
            return f"{self.uri} {self.size_bytes} {self.mark}"
        digest = xxhash.xxh3_128()
        with self.open_raw() as stream:
            if self.size_bytes > _HASHED_WHOLE_BYTES:
                digest.update(local_mark(self.path).encode())
                for part in range(_PARTS):
                    stream.seek((self.size_bytes - _PART_BYTES) * part // (_PARTS - 1))
                    digest.update(stream.read(_PART_BYTES))
            else:
                while block := stream.read(_BLOCK_BYTES):
                    digest.update(block)
        self.check_unchanged()
        return digest.hexdigest() + self._table

    @property
    def reader(self) -> str:
        """The way from bytes to rows, as part of a cache key: the same bytes under another ending give other rows."""
        return f"{self.kind} {self.compression} {is_tab_separated(self.path)}{f' {self.sheet}' if self.sheet else ''}"

    @property
    def mark(self) -> str:
        """The version of the content by metadata of the file system, the store or the table, without reading it."""
        return f"{self.found.mark or self.found.etag or self.found.modified or ''}{self._table}"

    @property
    def _table(self) -> str:
        return f" {self.part.snapshot} {self.part.constants}" if self.part else ""


def kind_by_ending(path: str) -> tuple[Kind | None, Compression]:
    """The type and compression that a name states: `a.jsonl.gz` -> jsonl, gzip."""
    name = PurePosixPath(path.lower())
    compression = COMPRESSED_ENDINGS.get(name.suffix, "")
    return ENDINGS.get(PurePosixPath(name.stem).suffix if compression else name.suffix), compression


def is_tab_separated(path: str) -> bool:
    """Whether a name states tab-separated values: `a.tsv`, `a.tsv.zst`."""
    name = PurePosixPath(path.lower())
    return (PurePosixPath(name.stem).suffix if name.suffix in COMPRESSED_ENDINGS else name.suffix) == ".tsv"


def recognise(found: FoundFile, file_type: str = "auto", *, look: bool = True, may_be_pointer: bool = True) -> DataFile:
    """The file with its type: from the JobSpec, else by ending, else by content. `look`: read the start of JSON lines too,
    which may be one document. `may_be_pointer`: look whether a small file stands for another.

    Raises BadInput where the type stays unknown, or is not read.
    """
    by_ending, compression = kind_by_ending(found.path)
    if found.size_bytes == 0:
        raise BadInput(f"{found.uri}: the file is empty", "write samples into it, or point at another file")
    given: dict[str, Kind] = {kind: kind for kind in ENDINGS.values()} | {"hf": "arrow"}
    kind = given.get(file_type, by_ending)
    if kind is None and (unread := unread_by_name(found.path)):
        raise BadInput(f"{found.uri}: {unread.what}, which is not read", unread.advice)
    if (
        kind is None or by_ending == "json" or (look and file_type == "auto" and by_ending == "jsonl")
    ):  # both endings are used for both notations
        return _by_content(DataFile(found, kind or "text", compression))
    if may_be_pointer and found.size_bytes < MOST_BYTES:
        with open_found(found) as raw:
            _refuse_pointer(found, raw.read(MOST_BYTES))
    return DataFile(found, kind, compression)


def _refuse_pointer(found: FoundFile, head: bytes) -> None:
    if pointer := pointer_in(head):
        raise BadInput(f"{found.uri}: a pointer of {pointer.tool}, not the file itself", pointer.advice)


def _by_content(file: DataFile) -> DataFile:
    with file.open_raw() as raw:
        head = raw.read(_HEAD_BYTES)
        _refuse_pointer(file.found, head)
        compression = next((kind for magic, kind in _COMPRESSED_MAGIC.items() if head.startswith(magic)), file.compression)
        file = replace(file, compression=compression)
        if compression:
            head = _decompressed_head(head + raw.read(_COMPRESSED_HEAD_BYTES), compression)
    named = kind_by_ending(file.path)[0]
    kind = next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)
    kind = kind or json_notation(file, head) or ("jsonl" if named == "jsonl" else None)
    if kind is None:
        if unread := unread_by_content(head):
            raise BadInput(f"{file.uri}: {unread.what}, which is not read", unread.advice)
        refuse_utf_16(file, head)
        what = "binary data" if b"\0" in head else "text"
        raise BadInput(
            f"{file.uri}: its type is unknown: the ending names none, and it holds {what}",
            "set data.fileType: parquet, jsonl, json, csv, text, arrow or excel",
        )
    return replace(file, kind=kind)


def _decompressed_head(content: bytes, compression: Compression) -> bytes:
    """The first decompressed bytes of a file's start, which may be cut anywhere."""
    import pyarrow as pa

    try:
        return decompressed(io.BytesIO(content), compression).read(_HEAD_BYTES)
    except (pa.ArrowException, EOFError, OSError):
        return b""  # the reader of rows reports the place of the damage
