"""One file of a data set, and what type it is: by its ending, else by its first bytes."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import IO, Any, Literal

import xxhash

from tuneyard.api import BadInput
from tuneyard.data.encoding import refuse_utf_16

Kind = Literal["parquet", "jsonl", "json", "csv", "text", "arrow"]
Compression = Literal["", "gzip", "zstd", "bz2"]

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
}
COMPRESSED_ENDINGS: dict[str, Compression] = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd", ".bz2": "bz2"}
_MAGIC: dict[bytes, Kind] = {b"PAR1": "parquet", b"ARROW1": "arrow", b"\xff\xff\xff\xff": "arrow"}
_COMPRESSED_MAGIC: dict[bytes, Compression] = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2"}
_BLOCK_BYTES = 1 << 22
_HASHED_WHOLE_BYTES = 1 << 30
_PARTS, _PART_BYTES = 64, 1 << 20


@dataclass(frozen=True)
class FoundFile:
    """A file as a listing shows it. `path` is what `fs` knows it by, `uri` what people see. `fs` None: a local file."""

    uri: str
    path: str
    size_bytes: int
    etag: str = ""
    fs: Any = None
    mark: str = ""
    """Of a local file: what its file system changes with every write (`local_mark`)."""


@dataclass(frozen=True)
class DataFile:
    """A file whose type is known."""

    found: FoundFile
    kind: Kind
    compression: Compression = ""

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
        """The bytes as they lie there, seekable."""
        if self.found.fs is None:
            return open(self.path, "rb")
        stream: IO[bytes] = self.found.fs.open(self.path, "rb")
        return stream

    def open(self) -> IO[bytes]:
        """The bytes, decompressed while they are read."""
        if not self.compression:
            return self.open_raw()
        import pyarrow as pa

        return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(self.open_raw(), "r"), self.compression), 1 << 20)

    def changed(self) -> bool:
        """Whether a local file is another one than it was when it was listed."""
        return self.is_local and bool(self.found.mark) and local_mark(self.path) != self.found.mark

    def identity(self) -> str:
        """What changes when the content does: a hash of a local file's bytes; a remote one's address, size and etag.

        Of a local file above 1 GiB: what its file system says of it, and a hash of 64 parts of 1 MiB.
        """
        if not self.is_local:
            return f"{self.uri} {self.size_bytes} {self.found.etag}"
        digest = xxhash.xxh3_128()
        if self.size_bytes > _HASHED_WHOLE_BYTES:
            digest.update(local_mark(self.path).encode())
            with open(self.path, "rb") as stream:
                for part in range(_PARTS):
                    stream.seek((self.size_bytes - _PART_BYTES) * part // (_PARTS - 1))
                    digest.update(stream.read(_PART_BYTES))
            return digest.hexdigest()
        with open(self.path, "rb") as stream:
            while block := stream.read(_BLOCK_BYTES):
                digest.update(block)
        return digest.hexdigest()


def local_mark(path: str) -> str:
    """Size, times and number of a file: a write, a copy or a rename over it changes at least one of them."""
    about = os.stat(path)
    return f"{about.st_size} {about.st_mtime_ns} {about.st_ctime_ns} {about.st_ino}"


def kind_by_ending(path: str) -> tuple[Kind | None, Compression]:
    """The type and compression that a name promises: `a.jsonl.gz` -> jsonl, gzip."""
    name = PurePosixPath(path.lower())
    compression = COMPRESSED_ENDINGS.get(name.suffix, "")
    return ENDINGS.get(PurePosixPath(name.stem).suffix if compression else name.suffix), compression


def is_tab_separated(path: str) -> bool:
    """Whether a name promises tabs: `a.tsv`, `a.tsv.zst`."""
    name = PurePosixPath(path.lower())
    return (PurePosixPath(name.stem).suffix if name.suffix in COMPRESSED_ENDINGS else name.suffix) == ".tsv"


def recognise(found: FoundFile, file_type: str = "auto") -> DataFile:
    """Decide the type: what the JobSpec says, else by ending, else by content. Raises BadInput if none of them tells."""
    by_ending, compression = kind_by_ending(found.path)
    if found.size_bytes == 0:
        raise BadInput(f"{found.uri}: the file is empty", "write samples into it, or point at another file")
    given: dict[str, Kind] = {"jsonl": "jsonl", "csv": "csv", "text": "text", "parquet": "parquet", "hf": "arrow"}
    kind = given.get(file_type, by_ending)
    if kind is None or by_ending == "json":  # .json: an array or, as often, one object per line
        return _by_content(DataFile(found, kind or "text", compression))
    return DataFile(found, kind, compression)


def _by_content(file: DataFile) -> DataFile:
    with file.open_raw() as raw:
        start = raw.read(8)
    compression = next((kind for magic, kind in _COMPRESSED_MAGIC.items() if start.startswith(magic)), file.compression)
    file = replace(file, compression=compression)
    with file.open() as stream:
        head = stream.read(4096)
    kind = next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None) or _json_kind(head.lstrip(b"\xef\xbb\xbf \t\r\n"))
    if kind is None:
        refuse_utf_16(file, head)
        what = "binary data" if b"\0" in head else "text"
        raise BadInput(
            f"{file.uri}: what type of file is this? Its ending does not tell, and it holds {what}",
            "set data.fileType: parquet, jsonl, csv or text",
        )
    return replace(file, kind=kind)


def _json_kind(head: bytes) -> Kind | None:
    """JSONL has whole objects on lines; anything else that starts like JSON is one document."""
    if head[:1] not in (b"{", b"["):
        return None
    first_line, has_more, _ = head.partition(b"\n")
    spread_over_lines = bool(has_more) and not first_line.rstrip().endswith(b"}")
    return "json" if head[:1] == b"[" or spread_over_lines else "jsonl"
