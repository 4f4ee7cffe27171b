"""Files as disks, networks and programs leave them behind: each is read, costs its bad rows only, or is refused by name."""

from __future__ import annotations

import bz2
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.builders.models import tokenizer_of

from tuneyard.api import BadInput, ScoreData, TrainData
from tuneyard.data import ScoreRows, lines, prepare
from tuneyard.data.records import BadRow, Record, read_records
from tuneyard.data.sources import locate

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda content: content,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": lambda content: bytes(pa.Codec("zstd").compress(content)),
}


def values(path: Path) -> list[object]:
    return [row.values if isinstance(row, Record) else row for row in read_records(locate(str(path)).files)]


def bad_rows(path: Path) -> list[tuple[str, str]]:
    return [(row.place.removeprefix(f"{path}:"), row.reason) for row in read_records(locate(str(path)).files) if isinstance(row, BadRow)]


# --- lines


@pytest.mark.parametrize("ending", PACKERS)
def test_one_broken_line_among_many_is_skipped_counted_and_named(ending: str, tmp_path: Path) -> None:
    rows = [json.dumps({"text": f"row {number}"}) for number in range(30_000)]
    rows[12_345] = rows[12_345][:9]
    path = tmp_path / f"a.jsonl{ending}"
    path.write_bytes(PACKERS[ending]("\n".join(rows).encode()))
    assert bad_rows(path) == [("12346", "not JSON: Expecting value at character 11")]
    tokenizer = tokenizer_of([], eos="<e>", chat_template="")
    if not ending:
        report = prepare(TrainData(source=str(path), limit=15_000), tokenizer, objective="clm", seed=0, cache_dir=tmp_path / "c").report
        assert (report.samples, report.bad) == (15_000, 1)
        assert f"{path}:12346: not JSON" in report.bad_examples[0]


LINES = {
    "byte order mark": b'\xef\xbb\xbf{"text": "one"}\n{"text": "two"}\n',
    "CRLF": b'{"text": "one"}\r\n{"text": "two"}\r\n',
    "no end of the last line": b'{"text": "one"}\n{"text": "two"}',
    "empty lines": b'\n{"text": "one"}\n\n \r\n{"text": "two"}\n\n',
}


@pytest.mark.parametrize("how", LINES)
@pytest.mark.parametrize("ending", PACKERS)
def test_lines_that_are_read_as_meant(how: str, ending: str, tmp_path: Path) -> None:
    (tmp_path / f"a.jsonl{ending}").write_bytes(PACKERS[ending](LINES[how]))
    assert values(tmp_path / f"a.jsonl{ending}") == [{"text": "one"}, {"text": "two"}]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"text": "a\0b"}', "not JSON: Invalid control character at character 12"),
        (b"\0" * 4096, "not JSON: Expecting value at character 1"),
        (b'{"text": "\\ud83d"}', "half of a surrogate pair"),
        (b'{"text": "\xed\xa0\xbd"}', "not UTF-8 (byte 0xed)"),
        (b'{"text": "\xff"}', "not UTF-8 (byte 0xff)"),
    ],
    ids=["NUL", "a block of NUL, as after a power cut", "half of a pair, escaped", "half of a pair, in bytes", "no UTF-8"],
)
def test_a_line_that_cannot_be_text_costs_itself_alone(content: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "one"}\n' + content + b'\n{"text": "two"}\n')
    ((place, why),) = bad_rows(path)
    assert place == "2"
    assert reason in why
    assert [row for row in values(path) if isinstance(row, dict)] == [{"text": "one"}, {"text": "two"}]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.csv", "a.txt"])
def test_a_line_that_is_too_long_is_skipped_counted_and_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LONGEST_ROW_BYTES", 1 << 20)
    rows = {"csv": (b"text,n\n", b"a,1\n", b"b,2\n"), "txt": (b"", b"a\n", b"b\n")}
    head, first, second = rows.get(name[2:], (b"", b'{"text": "a"}\n', b'{"text": "b"}\n'))
    path = tmp_path / name
    content = head + first + b"x" * (3 << 20) + b"\n" + second
    path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    number = "3" if name == "a.csv" else "2"
    assert bad_rows(path) == [(number, "a row of 3 MiB; rows of more than 1 MiB are skipped")]
    assert [row["text"] for row in values(path) if isinstance(row, dict)] == ["a", "b"]


def test_a_row_to_score_that_is_too_long_is_an_error_of_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LONGEST_ROW_BYTES", 1 << 20)
    (tmp_path / "a.jsonl").write_bytes(b'{"prompt": "a"}\n' + b"x" * (3 << 20) + b'\n{"prompt": "b"}\n' * 100)
    rows = ScoreRows.open(ScoreData(source=str(tmp_path / "a.jsonl"), prompt="prompt"))
    assert rows.count() == 102
    assert [row["prompt"] for row in rows.read(0, 3)] == ["a", "", "b"]
    assert "a row of 3 MiB" in str(rows.read(1, 2)[0]["error"])
    assert rows.read(100, 101)[0]["prompt"] == "b"


MEMORY = """
import resource, sys
from tuneyard.data.records import BadRow, read_records
from tuneyard.data.sources import locate
list(read_records(locate(sys.argv[1]).files))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rows = list(read_records(locate(sys.argv[2]).files))
assert [type(row).__name__ for row in rows] == ["Record", "BadRow", "Record"], rows
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.csv", "a.txt"])
def test_a_line_of_300_megabytes_is_passed_over_in_bounded_memory(name: str, tmp_path: Path) -> None:
    row = {"csv": b"a,1\n", "txt": b"a\n"}.get(name[2:], b'{"text": "a"}\n')
    head = b"text,n\n" if name == "a.csv" else b""
    for path, long in ((tmp_path / f"small-{name}", 0), (tmp_path / name, 300)):
        with gzip.open(path, "wb", compresslevel=1) if name.endswith("gz") else path.open("wb") as out:
            out.write(head + row)
            for _ in range(long):
                out.write(b"x" * (1 << 20))
            out.write(b"\n" + row)
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(tmp_path / f"small-{name}"), str(tmp_path / name)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 200, "MB more than for a small file"


# --- files that break off


@pytest.mark.parametrize("ending", [ending for ending in PACKERS if ending])
@pytest.mark.parametrize("kept", [0.9, 0.5])
def test_compressed_data_that_break_off_are_refused_by_name(ending: str, kept: float, tmp_path: Path) -> None:
    content = PACKERS[ending]("".join(json.dumps({"text": os.urandom(50).hex()}) + "\n" for _ in range(20_000)).encode())
    path = tmp_path / f"a.jsonl{ending}"
    path.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(BadInput, match=rf"a\.jsonl{ending}:\d+: the compressed data breaks off here"):
        values(path)


@pytest.mark.parametrize("ending", [".gz", ".bz2"])
def test_compressed_data_that_are_damaged_inside_are_refused_by_name(ending: str, tmp_path: Path) -> None:
    """Both keep checksums; zstd does where the program that wrote it was asked to."""
    content = bytearray(PACKERS[ending]("".join(json.dumps({"text": os.urandom(50).hex()}) + "\n" for _ in range(20_000)).encode()))
    middle = len(content) // 2
    content[middle : middle + 64] = bytes(255 - byte for byte in content[middle : middle + 64])
    path = tmp_path / f"a.jsonl{ending}"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=rf"a\.jsonl{ending}:\d+: the compressed data breaks off here"):
        values(path)


@pytest.mark.parametrize("kept", [0.99, 0.5, 0.01])
def test_a_parquet_file_that_breaks_off_is_refused_by_name(kept: float, tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": [f"row {number}" for number in range(1000)]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"text": [os.urandom(20).hex() for _ in range(10_000)]}), tmp_path / "b.parquet")
    content = (tmp_path / "b.parquet").read_bytes()
    (tmp_path / "b.parquet").write_bytes(content[: int(kept * len(content))])
    with pytest.raises(BadInput, match=r"b\.parquet: not a complete Parquet file"):
        values(tmp_path)


# --- files that change


def reading(folder: Path) -> Iterator[object]:
    located = locate(str(folder))
    return read_records(located.files)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    for name in ("a", "b"):
        (tmp_path / "data" / f"{name}.jsonl").write_text("".join(json.dumps({"text": f"{name} {n}"}) + "\n" for n in range(1000)))
    pq.write_table(pa.table({"text": ["c"] * 1000}), tmp_path / "data" / "c.parquet", row_group_size=100)
    return tmp_path / "data"


def grow(path: Path) -> None:
    with path.open("ab") as out:
        out.write(b'{"text": "more"}\n')


def write_anew(path: Path) -> None:
    content = path.read_bytes()
    stat = path.stat()
    path.write_bytes(content.swapcase())
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1_000_000))


@pytest.mark.parametrize("name", ["a.jsonl", "b.jsonl", "c.parquet"])
@pytest.mark.parametrize("change", [grow, write_anew])
@pytest.mark.parametrize("after", [0, 500])
def test_a_file_that_changes_between_listing_and_reading_is_refused_by_name(
    name: str, change: Callable[[Path], None], after: int, folder: Path
) -> None:
    rows = reading(folder)
    for _ in range(after):
        next(rows)
    change(folder / name)
    with pytest.raises(BadInput, match=rf"{name}: changed while it was being used \(") as refused:
        for _ in rows:
            pass
    assert refused.value.next_step == "write new data into new files, and start the task again with these"


def test_a_file_that_is_deleted_meanwhile_is_named(folder: Path) -> None:
    rows = reading(folder)
    next(rows)
    (folder / "b.jsonl").unlink()
    with pytest.raises(BadInput, match=r"b\.jsonl: nothing is there"):
        list(rows)


def test_the_identity_is_that_of_the_files_that_were_listed(folder: Path) -> None:
    files = locate(str(folder)).files
    grow(folder / "a.jsonl")
    with pytest.raises(BadInput, match=r"a\.jsonl: changed while it was being used \([\d,]+ bytes, now [\d,]+\)"):
        files[0].identity()
