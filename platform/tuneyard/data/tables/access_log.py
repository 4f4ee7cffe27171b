"""The access log of a table: JSON lines, one per read, with the features of the read and the bytes fetched for them.

`tuneyard data columns` and `tuneyard data reorder` order a table by this log. Each line is appended by a single write, so that several
processes of a machine may share a file. Logs of several machines are concatenated.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import xxhash

from tuneyard.api import BadInput
from tuneyard.data.json_text import parsed_json


@dataclass(frozen=True)
class Access:
    """One read of a table."""

    table: str
    features: tuple[str, ...]
    rows: int
    read_bytes: int
    requests: int

    def append_to(self, path: Path) -> None:
        """Append a line to the log. Raises BadInput where the log cannot be written."""
        line = {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "table": self.table,
            "features": list(self.features),
            "rows": self.rows,
            "bytes": self.read_bytes,
            "requests": self.requests,
        }
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab", buffering=0) as log:
                log.write(json.dumps(line).encode() + b"\n")
        except OSError as error:
            raise BadInput(f"access log {path}: {error.strerror or error}", "name a file that this user may write") from error


@dataclass(frozen=True)
class Projections:
    """The distinct projections in a log, each with the number of rows read. A projection is a frozen set of features."""

    rows: Mapping[frozenset[str], int]
    skipped_lines: int = 0

    @property
    def features(self) -> frozenset[str]:
        """All features that were read at least once."""
        return frozenset(name for projection in self.rows for name in projection)

    @property
    def summary(self) -> str:
        """For messages: `2 projections over 24,000 rows`."""
        count, rows = len(self.rows), sum(self.rows.values())
        return f"{count:,} projection{'' if count == 1 else 's'} over {rows:,} row{'' if rows == 1 else 's'}"

    @cached_property
    def digest(self) -> str:
        """A hash of the projections and rows, independent of the order of lines."""
        lines = sorted(json.dumps([sorted(projection), rows]) for projection, rows in self.rows.items())
        return xxhash.xxh3_64_hexdigest("\n".join(lines).encode())


def read_log(paths: Iterable[Path]) -> Projections:
    """Sum up logs. Truncated lines (of a killed writer) and foreign lines are skipped and counted.

    Raises BadInput: a missing file, or no usable line.
    """
    rows: dict[frozenset[str], int] = {}
    skipped = 0
    names: Sequence[Path] = tuple(paths)
    for path in names:
        try:
            lines = path.read_bytes().splitlines()
        except OSError as error:
            raise BadInput(f"access log {path}: {error.strerror or error}", "name a log that readers wrote with access_log=…") from error
        for line in lines:
            try:
                projection, count = _parsed(line)
            except (ValueError, KeyError, TypeError):
                skipped += bool(line.strip())
                continue
            rows[projection] = rows.get(projection, 0) + count
    if not rows:
        shown = ", ".join(str(path) for path in names)
        raise BadInput(f"access log {shown}: holds no read ({skipped} lines cannot be used)", "let a reader write one: access_log=…")
    return Projections(rows, skipped)


def _parsed(line: bytes) -> tuple[frozenset[str], int]:
    values = parsed_json(line)
    features, count = values["features"], values["rows"]
    if not (isinstance(features, list) and features and all(isinstance(name, str) for name in features)):
        raise TypeError("features")
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise TypeError("rows")
    return frozenset(features), count
