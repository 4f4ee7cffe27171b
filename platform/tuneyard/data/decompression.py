"""Compressed streams, decompressed while they are read. They accept the files of `zcat`, `bzcat` and `zstdcat`; truncated data is an error.

gzip and bzip2 are sequences of members. Python's zlib and bz2 read one member each; the next member begins behind it. pyarrow's codecs
are 4 to 7 % faster for gzip and slower for bzip2. They refuse a bzip2 file with an empty member, and a gzip file padded with zeros by tape.
"""

from __future__ import annotations

import bz2
import io
import zlib
from collections.abc import Callable
from typing import IO, Any, Protocol

_BLOCK_BYTES = 64 << 10
_AHEAD_BYTES = 1 << 20
_GZIP_WINDOW = 16 + zlib.MAX_WBITS


def decompressed(stream: IO[bytes], compression: str) -> IO[bytes]:
    """The decompressed content of `stream`. `compression`: gzip, bz2, zstd; "" for none.

    Reading raises OSError or an error of pyarrow where the data are damaged or end too early.
    """
    if not compression:
        return stream
    if compression == "zstd":
        import pyarrow as pa

        return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(stream, "r"), compression), _AHEAD_BYTES)
    return io.BufferedReader(_Members(stream, compression), _AHEAD_BYTES)


class _Member(Protocol):
    """One member, decompressed in parts of a bounded size. Raises OSError where it is damaged."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool:
        """False where `max_length` cut the last part."""

    @property
    def unused_data(self) -> bytes:
        """Input after the end of the member."""

    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _GzipMember:
    """zlib's object with the interface of bz2's: it keeps input that exceeded `max_length`."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP_WINDOW)

    @property
    def eof(self) -> bool:
        return self._member.eof

    @property
    def needs_input(self) -> bool:
        return not self._member.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._member.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        try:
            return self._member.decompress(self._member.unconsumed_tail + data, max_length)
        except zlib.error as error:
            raise OSError(str(error)) from error


class _Members(io.RawIOBase):
    """All members of a gzip or bzip2 stream, concatenated. Zeros between and behind them are padding."""

    def __init__(self, stream: IO[bytes], compression: str) -> None:
        self._stream = stream
        self._new: Callable[[], _Member] = _GzipMember if compression == "gzip" else bz2.BZ2Decompressor
        self._member: _Member | None = self._new()
        self._rest = b""
        """Bytes that were read but not yet given to a member."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Raises OSError where a member is damaged or ends too early."""
        while self._member is not None or self._begins():
            if found := self._part(len(buffer)):
                buffer[: len(found)] = found
                return len(found)
        return 0

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()

    def _begins(self) -> bool:
        """Begin the next member. False: there is none."""
        while not (rest := self._rest.lstrip(b"\0")):
            self._rest = self._stream.read(_BLOCK_BYTES)
            if not self._rest:
                return False
        self._rest, self._member = rest, self._new()
        return True

    def _part(self, size: int) -> bytes:
        member = self._member
        assert member is not None
        asks = member.needs_input
        data = (self._rest or self._stream.read(_BLOCK_BYTES)) if asks else b""
        self._rest = b""
        found = member.decompress(data, size)
        if member.eof:
            self._member, self._rest = None, member.unused_data
        elif asks and not data and not found:
            raise OSError("it ends before its end mark")
        return found
