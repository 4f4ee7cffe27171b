"""What a path may be, and what is said when it is nothing."""

import bz2
import csv
import gzip
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tuneyard.api import BadInput
from tuneyard.data.records import BadRow, Record, read_records
from tuneyard.data.sources import locate

ROWS = [{"text": "one"}, {"text": "two"}, {"text": "three"}]
JSONL = "".join(json.dumps(row) + "\n" for row in ROWS)


def values(uri: str | Path, **how: str) -> list[object]:
    return [row.values if isinstance(row, Record) else row for row in read_records(locate(str(uri), **how).files)]


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson", "a.json", "a.dat"])
def test_json_lines_under_any_name(tmp_path: Path, name: str) -> None:
    assert values(write(tmp_path / name, JSONL)) == ROWS


@pytest.mark.parametrize("content", [json.dumps(ROWS), json.dumps(ROWS, indent=1), json.dumps({"data": ROWS}, indent=1)])
def test_a_json_array(tmp_path: Path, content: str) -> None:
    assert values(write(tmp_path / "a.json", content)) == ROWS


PACKERS = {"gz": gzip.compress, "bz2": bz2.compress, "zst": lambda data: bytes(pa.Codec("zstd").compress(data))}


@pytest.mark.parametrize("ending", PACKERS)
def test_compressed_lines_by_ending_by_content_and_in_several_streams(tmp_path: Path, ending: str) -> None:
    pack = PACKERS[ending]
    write(tmp_path / f"a.jsonl.{ending}", pack(JSONL.encode()))
    write(tmp_path / "b.dat", pack(JSONL.encode()))
    write(tmp_path / f"c.jsonl.{ending}", b"".join(pack(line.encode()) for line in JSONL.splitlines(keepends=True)))
    assert values(tmp_path / f"a.jsonl.{ending}") == values(tmp_path / "b.dat") == values(tmp_path / f"c.jsonl.{ending}") == ROWS


@pytest.mark.parametrize("ending", PACKERS)
def test_a_compressed_tsv_is_split_by_tabs_though_it_holds_more_commas(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"a.tsv.{ending}", PACKERS[ending](b"text\ta,b,c\none, two, three\tx\n"))
    assert values(path) == [{"text": "one, two, three", "a,b,c": "x"}]


@pytest.mark.parametrize(("name", "separator"), [("a.csv", ","), ("a.csv", ";"), ("a.tsv", "\t")])
def test_csv_with_its_separator(tmp_path: Path, name: str, separator: str) -> None:
    write(tmp_path / name, f'prompt{separator}completion\n"two\nlines"{separator}x\na{separator}b\n')
    assert values(tmp_path / name) == [{"prompt": "two\nlines", "completion": "x"}, {"prompt": "a", "completion": "b"}]


def test_parquet_and_arrow(tmp_path: Path) -> None:
    table = pa.Table.from_pylist(ROWS)
    pq.write_table(table, tmp_path / "a.parquet")
    with pa.OSFile(str(tmp_path / "b.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    assert values(tmp_path / "a.parquet") == values(tmp_path / "b.arrow") == ROWS


def test_text_has_a_sample_per_line(tmp_path: Path) -> None:
    assert values(write(tmp_path / "a.txt", "one\n\ntwo\r\n")) == [{"text": "one"}, {"text": "two"}]


def test_folders_globs_and_file_uris_are_read_in_order_of_name(tmp_path: Path) -> None:
    write(tmp_path / "b.jsonl", '{"text": "two"}\n')
    write(tmp_path / "a.jsonl", '{"text": "one"}\n')
    write(tmp_path / "sub" / "c.jsonl", '{"text": "three"}\n')
    write(tmp_path / "README.md", "not data")
    write(tmp_path / "_SUCCESS", "")
    assert values(tmp_path) == values(f"file://{tmp_path}") == ROWS
    assert values(tmp_path / "[ab].jsonl") == values(tmp_path / "?.jsonl") == ROWS[:2]


def test_a_folder_with_files_per_split_gives_the_one_that_is_asked_for(tmp_path: Path) -> None:
    write(tmp_path / "train-00000-of-00001.jsonl", JSONL)
    write(tmp_path / "test-00000-of-00001.jsonl", '{"text": "secret"}\n')
    assert values(tmp_path) == ROWS
    assert locate(str(tmp_path)).notes == ("only files of the split train are used; 1 others are left out",)
    assert values(tmp_path, split="test") == [{"text": "secret"}]


@pytest.mark.parametrize("mark", ["_", "-", "."])
def test_any_usual_mark_ends_the_name_of_a_split(mark: str, tmp_path: Path) -> None:
    write(tmp_path / f"train{mark}0.jsonl", JSONL)
    write(tmp_path / f"test{mark}0.jsonl", '{"text": "secret"}\n')
    assert values(tmp_path) == ROWS


def test_a_missing_file_names_what_is_near(tmp_path: Path) -> None:
    write(tmp_path / "chats.jsonl", JSONL)
    with pytest.raises(BadInput, match="no such file or folder") as refused:
        locate(str(tmp_path / "chat.jsonl"))
    assert refused.value.next_step == f"did you mean chats.jsonl? (in {tmp_path})"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.jsonl": ""}, "the file is empty"),
        ({"a.xyz": "what is this"}, "its type is unknown.*it holds text"),
        ({"a.bin": b"\0\1\2"}, "its type is unknown.*it holds binary data"),
        ({"a.parquet": b"PAR1 cut off"}, "not a complete Parquet file"),
        ({"a.arrow": b"ARROW1 cut off"}, "not a complete Arrow file"),
        ({"notes.md": "x", "b.md": "y"}, "holds no data file"),
        ({"a.jsonl.gz": gzip.compress(JSONL.encode() * 1000)[:-20]}, "the compressed data breaks off here"),
        ({"a.json": '[{"text": "x"},\n'}, "not a JSON array"),
        ({"a.csv": "x,x\n1,2\n"}, "two columns have the same name"),
        ({"a.csv": "x,y\r1,2\r"}, r"a\.csv:1: the header is not CSV: new-line character"),
        ({"a.csv": b"gr\xfc\xdfe,y\n1,2\n"}, r"a\.csv:1: not UTF-8 \(byte 0xfc\)"),
        ({"a.json": b'[{"text": "x"},\n{"text": "\xe4"}]'}, r"a\.json:2: not UTF-8 \(byte 0xe4\)"),
    ],
)
def test_files_that_cannot_be_read_say_why(tmp_path: Path, files: dict[str, str | bytes], message: str) -> None:
    for name, content in files.items():
        write(tmp_path / name, content)
    with pytest.raises(BadInput, match=message) as refused:
        values(tmp_path if len(files) > 1 else tmp_path / next(iter(files)))
    assert refused.value.next_step


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16le", "utf-16be"])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.txt", "a.jsonl", "a.json"])
def test_utf_16_is_refused_with_the_command_that_converts_it(tmp_path: Path, name: str, encoding: str) -> None:
    path = write(tmp_path / name, '{"prompt": "1",\t"completion": "2"}\r\n'.encode(encoding))
    with pytest.raises(BadInput, match=r"not UTF-8 \(byte 0x.. in line 1\): this is UTF-16") as refused:
        values(path)
    assert f"iconv -f {encoding} -t utf-8 {path} > " in refused.value.next_step


def test_bad_rows_come_with_their_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", b'{"text": "one"}\n{"text": \n[1]\n"x"\n{"text": "\xff"}\n')
    bad = [row for row in values(path) if isinstance(row, BadRow)]
    assert [row.place.rpartition(":")[2] for row in bad] == ["2", "3", "4", "5"]
    assert [row.reason.partition(":")[0] for row in bad] == [
        "not JSON",
        "a row must be an object, this is a list",
        "a row must be an object, this is a text",
        "not UTF-8 (byte 0xff)",
    ]
    assert [row.advice for row in bad] == ["", "", "", f"convert it: iconv -f cp1252 -t utf-8 {path} > {tmp_path / 'a.utf-8.jsonl'}"]


def test_bad_csv_rows_come_with_their_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b'a,b\n1,2\n1,2,3\n\xff,2\n3,4\n"open,5\n')
    assert [row if isinstance(row, dict) else (row.place.rpartition(":")[2], row.reason) for row in values(path)] == [  # type: ignore[attr-defined]
        {"a": "1", "b": "2"},
        ("3", "3 fields where the header has 2"),
        ("4", "not UTF-8 (byte 0xff)"),
        {"a": "3", "b": "4"},
        ("6", "not CSV: unexpected end of data"),
    ]


@pytest.mark.parametrize("sign", ["^", "~", "\x01"])
def test_a_separator_that_is_not_known_is_named_with_a_command_that_converts_the_file(tmp_path: Path, sign: str) -> None:
    path = tmp_path / "a b.csv"
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter=sign).writerows(
            [["question", "reply", "id"], ['so "quoted", and more', "4", "1"], ["two\nlines", "5", "2"]]
        )
    with pytest.raises(BadInput, match="the header has no known separator") as error:
        values(str(path))
    assert repr(sign) in error.value.cause
    subprocess.run(error.value.next_step.removeprefix("convert it: ").replace("python3", sys.executable), shell=True, check=True)
    assert [row["reply"] for row in values(str(tmp_path / "a b.comma.csv"))] == ["4", "5"]  # type: ignore[index]


def test_a_csv_of_one_column_is_no_file_with_another_separator(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b'some text\none line\n"a, and b"\nc, and d\n')
    first, second, bad = values(path)
    assert (first, second) == ({"some text": "one line"}, {"some text": "a, and b"})
    assert bad.reason == "2 fields where the header has 1: the header has no known separator (, ; tab |)"  # type: ignore[attr-defined]


def test_rows_in_single_quotation_marks_are_told_as_such(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b"question,reply\n'3 times 4; \"please\", and more','12, of course'\n")
    (bad,) = values(path)
    assert bad.reason == "4 fields where the header has 2: fields seem to be quoted with ', and CSV quotes with \""  # type: ignore[attr-defined]
    command = bad.advice.removeprefix("convert it: ").replace("python3", sys.executable)  # type: ignore[attr-defined]
    copy = tmp_path / "copy.csv"
    subprocess.run(command.replace("IN", str(path)).replace("OUT", str(copy)), shell=True, check=True)
    assert values(str(copy)) == [{"question": '3 times 4; "please", and more', "reply": "12, of course"}]


def test_a_damaged_row_group_costs_its_rows_only(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(
        pa.table({"text": [f"row {i} " + "x" * 50 for i in range(300)]}), path, row_group_size=100, compression="zstd", use_dictionary=False
    )
    content = bytearray(path.read_bytes())
    start = pq.ParquetFile(path).metadata.row_group(1).column(0).data_page_offset
    content[start + 5 : start + 60] = b"\0" * 55
    path.write_bytes(content)
    rows = values(path)
    assert sum(isinstance(row, dict) for row in rows) == 200
    assert [(row.count, "row group 1 is damaged" in row.reason) for row in rows if isinstance(row, BadRow)] == [(100, True)]


def test_an_unknown_scheme_names_the_nearest() -> None:
    with pytest.raises(BadInput, match=r"did you mean s3://"):
        locate("s4://bucket/a.jsonl")


def test_a_committed_folder_is_read_without_its_manifest(tmp_path: Path) -> None:
    (tmp_path / "part-0.txt").write_text("one\ntwo\n")
    (tmp_path / "manifest.json").write_text('{"files": {}}')

    located = locate(str(tmp_path))

    assert [Path(file.uri).name for file in located.files] == ["part-0.txt"]
