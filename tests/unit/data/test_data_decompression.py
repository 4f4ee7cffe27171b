"""Compressed files as tools write them: members, padding and what breaks off, read whole and piece by piece."""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneyard.api import BadInput
from tuneyard.data.decompression import decompressed
from tuneyard.data.records import Record, read_records
from tuneyard.data.sources import locate
from tuneyard.data.stream import extents as extents_module
from tuneyard.data.stream.reading import SplitData
from tuneyard.data.stream.splits import splits_of

Pack = Callable[[bytes], bytes]
PACK: dict[str, Pack] = {"gzip": gzip.compress, "bz2": bz2.compress, "zstd": lambda content: bytes(pa.Codec("zstd").compress(content))}
ENDING = {"gzip": "gz", "bz2": "bz2", "zstd": "zst"}
FIRST, SECOND = (b"".join(b'{"text": "row %d"}\n' % n for n in rows) for rows in (range(50), range(50, 100)))
ODD: dict[str, Callable[[Pack], bytes]] = {
    "an empty member first": lambda pack: pack(b"") + pack(FIRST + SECOND),
    "an empty member between": lambda pack: pack(FIRST) + pack(b"") + pack(SECOND),
    "an empty member last": lambda pack: pack(FIRST) + pack(SECOND) + pack(b""),
    "thousands of empty members": lambda pack: pack(FIRST) + pack(b"") * 5000 + pack(SECOND),
}
PADDED: dict[str, Callable[[Pack], bytes]] = {
    "zeros behind, as on a tape": lambda pack: pack(FIRST) + pack(SECOND) + bytes(10_240 + 512),
    "zeros between": lambda pack: pack(FIRST) + bytes(512) + pack(SECOND),
}
BROKEN: dict[str, Callable[[Pack], bytes]] = {
    "something else behind": lambda pack: pack(FIRST) + b"garbage garbage",
    "one byte behind": lambda pack: pack(FIRST) + b"x",
    "zeros and something else behind": lambda pack: pack(FIRST) + bytes(512) + b"x",
    "cut in the last bytes": lambda pack: pack(FIRST)[:-3],
    "cut in the head of the second member": lambda pack: pack(FIRST) + pack(SECOND)[:3],
    "cut in the middle": lambda pack: pack(FIRST)[: len(pack(FIRST)) // 2],
    "a wrong sum": lambda pack: pack(FIRST)[:-8] + b"\1\2\3\4" + pack(FIRST)[-4:],
    "zeros first": lambda pack: bytes(512) + pack(FIRST),
}


@pytest.fixture(autouse=True)
def small_files_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extents_module, "_NOT_LOOKED_AT", 1 << 20)


def rows_of(path: Path) -> tuple[list[str], list[str]]:
    """Texts as they are read whole, and piece by piece."""
    files = list(locate(str(path)).files)
    pieces = [row for split in splits_of(files, 500) for row in SplitData(files, split).records()]
    whole, parts = ([row.values["text"] for row in rows if isinstance(row, Record)] for rows in (read_records(files), pieces))
    return whole, parts


@pytest.mark.parametrize(
    ("compression", "odd"), [*itertools.product(PACK, ODD), *itertools.product(["gzip", "bz2"], PADDED)]
)  # zstdcat refuses padding
def test_what_the_tools_take_is_read(compression: str, odd: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.jsonl.{ENDING[compression]}"
    path.write_bytes((ODD | PADDED)[odd](PACK[compression]))
    wanted = [f"row {n}" for n in range(100)]
    assert rows_of(path) == (wanted, wanted)


@pytest.mark.parametrize(
    ("compression", "broken"), [pair for pair in itertools.product(PACK, BROKEN) if pair != ("zstd", "a wrong sum")]
)  # pyarrow's zstd frames have no sum
def test_what_breaks_off_or_goes_on_as_something_else_is_refused(compression: str, broken: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.jsonl.{ENDING[compression]}"
    path.write_bytes(BROKEN[broken](PACK[compression]))
    with pytest.raises(BadInput, match="the compressed data breaks off here"):
        rows_of(path)


@pytest.mark.parametrize("compression", PACK)
@settings(max_examples=15, deadline=None)
@given(members=st.lists(st.binary(max_size=300) | st.just(b"a" * 3_000_000), max_size=4), sip=st.integers(1, 70_000))
def test_members_are_joined_whatever_the_reads(compression: str, members: list[bytes], sip: int) -> None:
    packed = b"".join(map(PACK[compression], members))
    stream = decompressed(io.BytesIO(packed or PACK[compression](b"")), compression)
    parts = []
    while part := stream.read(sip * 100):
        parts.append(part)
    assert b"".join(parts) == b"".join(members)
