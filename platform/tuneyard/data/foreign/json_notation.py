"""Whether a file of JSON holds one row a line, or one document: by its first lines, since endings are used for both."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from tuneyard.data.foreign.json_documents import CONTAINERS, SeveralLists, rows_of_document

if TYPE_CHECKING:
    from tuneyard.data.file_types import DataFile

_LONGEST_LINE = 64 << 20
_BLANK = b"\xef\xbb\xbf \t\r\n"
_SPREAD = {b"{": (b'"',), b"[": (b"{", b"[", b'"'), b"[{": (b'"',)}
"""First lines of documents that are spread over lines, and how the next line starts."""
Notation = Literal["jsonl", "json"]


def json_notation(file: DataFile, head: bytes) -> Notation | None:
    """`jsonl`: one row a line; `json`: a document, or several that are spread over lines. None: no JSON. `head`: the first bytes."""
    start = head.lstrip(_BLANK)
    if start[:1] not in (b"{", b"["):
        return None
    line, _, rest = start.partition(b"\n")
    if line.strip() in _SPREAD and rest.lstrip().startswith(_SPREAD[line.strip()]):
        return "json"
    named = file.path.lower().removesuffix(".gz").removesuffix(".zst").removesuffix(".bz2").endswith((".jsonl", ".ndjson"))
    if start[:1] == b"{" and start[len(line) :].strip():
        return "jsonl" if named or line.rstrip().endswith((b"}", b"},")) else "json"
    try:
        return _by_first_line(file, named=named)
    except (pa.ArrowException, EOFError, OSError):
        return "jsonl" if named else "json"  # the reader of rows reports the place of the damage


def _by_first_line(file: DataFile, *, named: bool) -> Notation:
    """The notation by the whole first line: an array that is the only line is a document. `named`: the ending says lines."""
    with file.open() as stream:
        line = b""
        while not line.strip(_BLANK):
            line = stream.readline(_LONGEST_LINE)
            if not line:
                return "jsonl"
        if len(line) == _LONGEST_LINE:
            return "jsonl" if named else "json"
        more = next((part for part in iter(lambda: stream.read(1 << 16), b"") if part.strip()), b"")
    begins_list = line.lstrip(_BLANK).startswith(b"[")
    if more:
        return "jsonl" if not begins_list or _parsed(line) is not None else "json"
    value = _parsed(line)
    if isinstance(value, list):
        turns = all(isinstance(each, dict) and ("role" in each or "from" in each) for each in value)
        return "jsonl" if named and value and turns else "json"
    try:
        holds_rows = isinstance(value, dict) and any(name in CONTAINERS for name in value) and rows_of_document(value) != [value]
        return "json" if not named or holds_rows else "jsonl"
    except SeveralLists:
        return "json"


def _parsed(line: bytes) -> object:
    try:
        return json.loads(line.decode("utf-8-sig").strip())
    except (ValueError, RecursionError):
        return None
