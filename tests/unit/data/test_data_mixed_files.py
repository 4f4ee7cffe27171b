"""Folders and patterns whose files differ: in type, in columns, in number; and names that tell one meaning everywhere."""

from __future__ import annotations

import builtins
import gzip
import io
import json
import os
import resource
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.builders.models import tokenizer_of

from tuneyard.api import BadInput, ScoreData, TrainData
from tuneyard.data import ScoreRows, inspect, open_dataset, prepare
from tuneyard.data.globs import is_pattern, matcher
from tuneyard.data.records import BadRow, Record, read_records
from tuneyard.data.sources import locate


def pair(number: int) -> dict[str, Any]:
    return {"prompt": f"question {number}", "completion": f"answer {number}"}


def jsonl(*rows: dict[str, Any]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Five rows in five types."""
    folder = tmp_path / "mixed"
    (folder / "deep").mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist([pair(0)]), folder / "a.parquet")
    (folder / "b.jsonl").write_bytes(jsonl(pair(1)))
    (folder / "c.jsonl.gz").write_bytes(gzip.compress(jsonl(pair(2))))
    (folder / "d.csv").write_text("prompt,completion\nquestion 3,answer 3\n")
    (folder / "deep" / "e.jsonl.zst").write_bytes(bytes(pa.Codec("zstd").compress(jsonl(pair(4)))))
    return folder


def values(uri: str | Path) -> list[object]:
    return [row.values if isinstance(row, Record) else row for row in read_records(locate(str(uri)).files)]


def test_files_of_several_types_are_one_data_set_in_order_of_their_names(mixed: Path, tmp_path: Path) -> None:
    expected = [pair(number) for number in range(5)]
    assert values(mixed) == expected
    assert list(open_dataset(str(mixed), cache_dir=tmp_path)) == expected
    scored = ScoreRows.open(ScoreData(source=str(mixed), prompt="prompt"), cache_dir=tmp_path).read(0, 5)
    assert [row["prompt"] for row in scored] == [row["prompt"] for row in expected]
    found = inspect(str(mixed))
    assert (found.samples, found.bad) == (5, 0)
    assert found.file_type == "csv: 1, jsonl: 1, jsonl (gzip): 1, jsonl (zstd): 1, parquet: 1"


def test_text_files_beside_columns_are_left_out_and_told(mixed: Path) -> None:
    (mixed / "README.txt").write_text("about\n")
    located = locate(str(mixed))
    assert len(located.files) == 5
    assert located.notes == (f"1 text file is left out beside files with columns, such as {mixed}/README.txt",)


def test_rows_of_a_file_with_other_columns_are_bad_and_name_its_columns(mixed: Path, tmp_path: Path) -> None:
    (mixed / "f.jsonl").write_bytes(jsonl({"question": "q", "reply": "r"}))
    found = inspect(str(mixed))
    assert (found.samples, found.bad) == (5, 1)
    assert found.bad_examples == [f"{mixed}/f.jsonl:1: no column prompt, completion; columns of this row: question, reply"]
    with pytest.raises(BadInput, match=r"1 of 6 rows are bad.*\n.*f\.jsonl:1: no column prompt, completion"):
        prepare(TrainData(source=str(mixed)), tokenizer_of([], eos="<e>", chat_template=""), objective="sft", seed=0, cache_dir=tmp_path)


def test_a_column_that_changes_its_type_names_the_file_and_both_types(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["one", "two"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"text": [1, 2]}), tmp_path / "b.parquet")
    found = inspect(str(tmp_path))
    assert (found.samples, found.bad) == (2, 2)
    assert found.bad_examples[0] == f"{tmp_path}/b.parquet:row 1: text is int, not text"
    with pytest.raises(BadInput, match=r"b\.parquet:row 1: does not fit the types of the first rows"):
        open_dataset(str(tmp_path), max_bad_fraction=0, cache_dir=tmp_path / "cache")


@pytest.mark.parametrize("name", ["empty.jsonl", "blank.jsonl", "empty.parquet", "empty.jsonl.gz", "empty.csv"])
def test_an_empty_file_among_others_changes_nothing(name: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(jsonl(pair(0)))
    (tmp_path / "z.jsonl").write_bytes(jsonl(pair(1)))
    if name == "empty.parquet":
        pq.write_table(pa.Table.from_pylist([pair(0)]).slice(0, 0), tmp_path / name)
    else:
        (tmp_path / name).write_bytes(gzip.compress(b"") if name.endswith("gz") else b"\n \n" if name == "blank.jsonl" else b"")
    assert values(tmp_path) == [pair(0), pair(1)]


PATTERNS = {
    "*.jsonl": ["a.jsonl", "b.jsonl"],
    "{a,c}.{jsonl,parquet}": ["a.jsonl", "c.parquet"],
    "{a,b{1,}}.jsonl": ["a.jsonl", "b.jsonl"],
    "**/*.jsonl": ["a.jsonl", "b.jsonl", "x/d.jsonl", "x/y/e.jsonl"],
    "x/**": ["x/d.jsonl", "x/y/e.jsonl"],
    "*/*.jsonl": ["x/d.jsonl"],
    "[!a].*": ["b.jsonl", "c.parquet"],
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_means_the_same_on_disks_and_in_buckets(pattern: str, tmp_path: Path) -> None:
    names = ["a.jsonl", "b.jsonl", "c.parquet", "x/d.jsonl", "x/y/e.jsonl"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text('{"text": "x"}\n')
    found = [str(Path(file.path).relative_to(tmp_path)) for file in locate(str(tmp_path / pattern)).files]
    assert found == PATTERNS[pattern]
    assert [name for name in names if matcher(f"data/{pattern}").fullmatch(f"data/{name}")] == PATTERNS[pattern]


def test_braces_without_a_choice_are_a_name(tmp_path: Path) -> None:
    (tmp_path / "{a}.jsonl").write_bytes(jsonl(pair(0)))
    assert not is_pattern("{a}.jsonl")
    assert values(tmp_path / "{a}.jsonl") == [pair(0)]


def test_a_folder_without_permission_is_refused_and_not_passed_over(tmp_path: Path) -> None:
    """As another user, where the tests run as root."""
    tmp_path = Path(f"/tmp/tuneyard-closed-{os.getpid()}")
    (tmp_path / "closed").mkdir(parents=True)
    try:
        (tmp_path / "a.jsonl").write_bytes(jsonl(pair(0)))
        (tmp_path / "closed").chmod(0)
        code = (
            "import os, sys; from tuneyard.data.sources import locate; import obstore.exceptions\n"
            "if os.geteuid() == 0: os.seteuid(65534)\n"
            "locate(sys.argv[1])"
        )
        done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
        assert "access was refused" in done.stderr, done.stderr
        assert f"{tmp_path}/closed" in done.stderr
    finally:
        (tmp_path / "closed").chmod(0o700)
        (tmp_path / "closed").rmdir()
        (tmp_path / "a.jsonl").unlink()
        tmp_path.rmdir()


def counted(monkeypatch: pytest.MonkeyPatch, *functions: tuple[Any, str]) -> Counter[str]:
    """Calls of functions of modules, by name, from now on."""
    calls: Counter[str] = Counter()

    def counting(name: str, function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls[name] += 1
            return function(*args, **kwargs)

        return call

    for module, name in functions:
        monkeypatch.setattr(module, name, counting(name, getattr(module, name)))
    return calls


def test_each_of_ten_thousand_small_files_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, others = 10_000, 100
    for number in range(files):
        (tmp_path / f"{number:05}.jsonl").write_bytes(jsonl(pair(number)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    calls = counted(monkeypatch, (os, "scandir"), (os, "stat"), (os, "open"), (io, "open"), (builtins, "open"))

    located = locate(str(tmp_path))
    listed = dict(calls)
    rows = sum(1 for _ in read_records(located.files))

    assert rows == files
    assert listed["scandir"] == calls["scandir"] == 1
    assert files <= listed["stat"] <= files + others
    assert listed.get("open", 0) <= others
    assert files <= calls["open"] <= files + others
    assert calls["stat"] <= 3 * files + others
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < 100


def test_bad_rows_of_every_type_are_named_with_their_place(mixed: Path) -> None:
    (mixed / "b.jsonl").write_bytes(b"{\n" + jsonl(pair(1)))
    (mixed / "d.csv").write_text("prompt,completion\nquestion 3\n")
    bad = [row for row in values(mixed) if isinstance(row, BadRow)]
    assert [row.place for row in bad] == [f"{mixed}/b.jsonl:1", f"{mixed}/d.csv:2"]
