"""Text that is not UTF-8: the byte that says so, and the command that converts the file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from tuneyard.api import BadInput
from tuneyard.api.quoting import quoted

if TYPE_CHECKING:
    from tuneyard.data.file_types import DataFile
    from tuneyard.data.lines import LongLine

_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")


class NotUtf8(ValueError):
    """A text that is not UTF-8. The message names the first invalid byte."""

    def __init__(self, error: UnicodeDecodeError) -> None:
        super().__init__(f"not UTF-8 (byte 0x{error.object[error.start]:02x})")


def convert(file: DataFile, encoding: str = "cp1252") -> str:
    """The next step for a file that is not UTF-8. Windows' cp1252 holds all printable characters of Latin-1 at the same bytes."""
    before, after = converted_names(file, "utf-8")
    return f"convert it: iconv -f {encoding} -t utf-8 {before} > {after}"


def converted_names(file: DataFile, mark: str) -> tuple[str, str]:
    """Names of a file and of its converted copy, `a.csv` and `a.MARK.csv`, quoted for a shell.

    IN and OUT for remote and compressed files, which a command cannot read directly.
    """
    if not file.is_local or file.compression:
        return "IN", "OUT"
    path = PurePosixPath(file.path)
    return quoted(path), quoted(path.with_name(f"{path.stem}.{mark}{path.suffix}"))


def refuse_utf_16(file: DataFile, start: bytes) -> None:
    """Raises BadInput where a file starts like UTF-16, such as the "Unicode text" of Excel: its lines cannot be split."""
    encoding = _utf_16(start)
    if encoding:
        foreign = start[0] if encoding == "utf-16" else 0
        raise BadInput(f"{file.uri}: not UTF-8 (byte 0x{foreign:02x} in line 1): this is UTF-16", convert(file, encoding))


def _utf_16(start: bytes) -> str:
    """iconv's name for the UTF-16 encoding of a file's start; empty for other encodings.

    Without a byte order mark, Latin characters identify UTF-16: every second byte is zero.
    """
    if start.startswith(_UTF_16_MARKS):
        return "utf-16"
    first = start[:16]
    for zeros, encoding in ((0, "utf-16be"), (1, "utf-16le")):
        if len(first) >= 8 and not any(first[zeros::2]) and all(first[1 - zeros :: 2]):
            return encoding
    return ""


class LineTooLong(ValueError):
    """A line that was skipped because it is too long."""


class Decoded:
    """Binary lines decoded to text. Invalid UTF-8 becomes replacement characters, and a skipped line one replacement character.

    The first fault is kept until `take_fault`.
    """

    def __init__(self, lines: Iterator[bytes | LongLine]) -> None:
        self._lines = lines
        self._fault: NotUtf8 | LineTooLong | None = None

    def __iter__(self) -> Decoded:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        if not isinstance(line, bytes):
            self._fault = self._fault or LineTooLong(line.reason)
            return "\ufffd\n"
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            self._fault = self._fault or NotUtf8(error)
            return line.decode(errors="replace")

    def take_fault(self) -> NotUtf8 | LineTooLong | None:
        """The first fault since the last call; None where there was none."""
        fault, self._fault = self._fault, None
        return fault
