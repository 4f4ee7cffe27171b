"""Files that can only be read from their front, in pieces: every row once and in order, whatever is inside, and whoever reads a piece."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.models import sentences, tokenizer_of

from tuneyard.api import BadInput, TrainData
from tuneyard.data import lines as lines_module
from tuneyard.data import prepare
from tuneyard.data.file_types import DataFile
from tuneyard.data.records import BadRow, Record, read_records
from tuneyard.data.sources import locate
from tuneyard.data.stream import extents as extents_module
from tuneyard.data.stream import forward, forward_csv, open_readers, split_order
from tuneyard.data.stream import splits as splits_module
from tuneyard.data.stream import windows as windows_module
from tuneyard.data.stream.extents import extents
from tuneyard.data.stream.reading import SplitData
from tuneyard.data.stream.split_order import LANES, AscendingOrder, Sequences
from tuneyard.data.stream.splits import Split, sample_of, sequences_of, splits_of
from tuneyard.data.stream.windows import Place, Windows

Found = list[tuple[str, Any]]

PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": lambda content: bytes(pa.Codec("zstd").compress(content)),
}


@pytest.fixture(autouse=True)
def small_files_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extents_module, "_NOT_LOOKED_AT", 1 << 20)


def written(path: Path, content: bytes) -> list[DataFile]:
    path.write_bytes(PACK[path.suffix if path.suffix in PACK else ""](content))
    return list(locate(str(path)).files)


def as_found(rows: Any) -> Found:
    return [(row.place, row.values if isinstance(row, Record) else (row.reason, row.count)) for row in rows]


def whole(files: list[DataFile]) -> Found:
    return as_found(read_records(files))


def piecewise(files: list[DataFile], splits: list[Split]) -> Found:
    return [row for split in splits for row in as_found(SplitData(files, split).records())]


def json_lines(count: int, seed: int = 0) -> bytes:
    drawn = random.Random(seed)
    lines = [json.dumps({"text": "x" * drawn.choice([0, 1, 50, 900]), "n": n}) for n in range(count)]
    for bad in ("", "  ", "{broken", "[]", "\x00", '"\\ud83d"'):
        lines[drawn.randrange(count)] = bad
    end = drawn.choice(["\n", "\r\n"])
    return drawn.choice([b"", b"\xef\xbb\xbf"]) + end.join(lines).encode() + drawn.choice([b"", b"\n"])


@pytest.mark.parametrize("ending", [".jsonl.gz", ".jsonl.bz2", ".jsonl.zst", ".txt.gz"])
@pytest.mark.parametrize("size", [9, 100, 3000, 1 << 20])
def test_pieces_of_compressed_lines_are_the_file(ending: str, size: int, tmp_path: Path) -> None:
    for seed in range(2):
        files = written(tmp_path / f"{size}-{seed}{ending}", json_lines(30, seed))
        splits = splits_of(files, size)
        assert len(splits) > 1 or size > 10_000
        assert piecewise(files, splits) == whole(files)


def csv_rows(seed: int, count: int = 60) -> bytes:
    drawn = random.Random(seed)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator=drawn.choice(["\n", "\r\n"]))
    writer.writerow(["text", "n"])
    for n in range(count):
        writer.writerow([drawn.choice(["plain", "two\nlines", 'a "word"', "a,b\n\n,c\nd", "", "naïve"]) * drawn.randrange(4), n])
    lines = out.getvalue().splitlines(keepends=True)
    for broken in ("one field only\n", '5" wide,7\n', "\n", '"stray"x,1\n', "a\rb,1\n"):
        lines.insert(drawn.randrange(1, len(lines)), broken)
    return "".join(lines).encode()


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".csv.zst"])
@pytest.mark.parametrize("size", [1, 40, 500])
def test_pieces_of_csv_are_the_file(ending: str, size: int, tmp_path: Path) -> None:
    for seed in range(4):
        files = written(tmp_path / f"{size}-{seed}{ending}", csv_rows(seed))
        splits = splits_of(files, size)
        assert len(splits) > 1
        assert piecewise(files, splits) == whole(files)


def test_a_quotation_mark_that_is_never_closed_takes_the_same_rows(tmp_path: Path) -> None:
    rows = [f"q{n},yes {n}" for n in range(300)]
    rows[100] = 'q100,"yes 100'
    files = written(tmp_path / "a.csv", ("text,n\n" + "\n".join(rows) + "\n").encode())
    found = piecewise(files, splits_of(files, 256))
    assert found == whole(files)
    assert sum(count for _, (_, count) in [row for row in found if isinstance(row[1], tuple)]) == 200


@given(st.text(alphabet='a,"\n\r;é', max_size=120), st.integers(1, 40), st.sampled_from([1, 16, 1 << 20]))
def test_any_csv_is_cut_where_its_rows_begin(text: str, size: int, buffer: int) -> None:
    before, forward_csv._BUFFER_BYTES = forward_csv._BUFFER_BYTES, buffer
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"tuneyard-forward-{os.getpid()}.csv"
    try:
        files = written(path, b"text,n\n" + text.encode())
        assert piecewise(files, splits_of(files, size)) == whole(files)
    finally:
        path.unlink()
        forward_csv._BUFFER_BYTES = before


@pytest.mark.parametrize("compression", [None, "lz4"])
@pytest.mark.parametrize("make", [pa.ipc.new_stream, pa.ipc.new_file])
def test_arrow_is_cut_inside_of_batches_too(make: Any, compression: str | None, tmp_path: Path) -> None:
    table = pa.table({"text": [f"text {n}" * (n % 7) for n in range(500)], "kind": pa.array(["a", "b"] * 250).dictionary_encode()})
    path = tmp_path / "a.arrow"
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.OSFile(str(path), "wb") as sink, make(sink, table.schema, options=options) as writer:
        for start, rows in ((0, 100), (100, 0), (100, 3), (103, 397)):
            writer.write_batch(table.to_batches()[0].slice(start, rows))
    files = list(locate(str(path)).files)
    for size in (20, 64, 1000, 5000):
        splits = splits_of(files, size)
        assert piecewise(files, splits) == whole(files)
    assert sum(bool(list(SplitData(files, split).records())) for split in splits_of(files, 1000)) > 4


def test_shards_of_arrow_are_named_by_rows_and_dictionaries(tmp_path: Path) -> None:
    names = {}
    for name, words in (("a", ["x", "y"]), ("b", ["x", "z"]), ("copy", ["x", "y"])):
        table = pa.table({"text": pa.array(words * 200).dictionary_encode()})
        with pa.OSFile(str(tmp_path / f"{name}.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        files = list(locate(str(tmp_path / f"{name}.arrow")).files)
        names[name] = [SplitData(files, split).content() for split in splits_of(files, 500)]
    assert names["a"] == names["copy"]
    assert len(names["a"]) > 2
    assert not set(names["a"][1:-1]) & set(names["b"])


def test_offsets_that_point_out_of_an_arrow_file_are_refused(tmp_path: Path) -> None:
    """Reading them would end the process by a signal."""
    table, path = pa.table({"text": ["q1", "q2", "q3"] * 40}), tmp_path / "a.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content = bytearray(path.read_bytes())
    at = content.find(b"\2\0\0\0\4\0\0\0\6\0\0\0")
    content[at : at + 4] = (2**30).to_bytes(4, "little")
    path.write_bytes(content)
    files = list(locate(str(path)).files)
    with pytest.raises(BadInput, match="not a complete Arrow file"):
        piecewise(files, splits_of(files, 200))


def test_files_of_several_members_are_read_to_their_end(tmp_path: Path) -> None:
    for ending in (".gz", ".bz2", ".zst"):
        path = tmp_path / f"a.jsonl{ending}"
        path.write_bytes(b"".join(PACK[ending](b'{"text": "%d"}\n' % number * 50) for number in range(9)))
        files = list(locate(str(path)).files)
        assert len(piecewise(files, splits_of(files, 300))) == 450


def test_pieces_come_in_any_order_and_from_any_process(tmp_path: Path) -> None:
    files = written(tmp_path / "a.jsonl.gz", json_lines(80))
    splits = splits_of(files, 700)
    wanted = whole(files)
    mixed = random.Random(1).sample(splits, len(splits))
    found = {split.number: as_found(SplitData(files, split).records()) for split in mixed}
    assert [row for split in splits for row in found[split.number]] == wanted
    list(SplitData(files, splits[3]).records())
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # the place in the parent's file is not the child's
        os.write(write, json.dumps(as_found(SplitData(files, splits[4]).records())).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert json.loads(os.read(read, 1 << 16)) == json.loads(json.dumps(found[4]))
    assert as_found(SplitData(files, splits[4]).records()) == found[4]


def test_splits_in_their_order_read_a_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = written(tmp_path / "a.jsonl.gz", json_lines(80)) + written(tmp_path / "b.csv", csv_rows(1))
    opened: list[str] = []
    reader_of = open_readers.reader_of
    monkeypatch.setattr(open_readers, "reader_of", lambda file: opened.append(file.uri) or reader_of(file))
    splits = splits_of(files, 300)
    for split in splits:
        data = SplitData(files, split)
        assert data.content()
        assert list(data.records()) or not data.read_bytes or split.number
    assert opened == [file.uri for file in files]


def test_lines_that_are_too_long_are_skipped_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (lines_module, forward, forward_csv):
        monkeypatch.setattr(module, "LONGEST_ROW_BYTES", 3000)
    monkeypatch.setattr(forward_csv, "_BUFFER_BYTES", 2000)
    row = b'{"text": "a"}\n'
    for name, content in (
        ("a.jsonl.gz", row + b'{"text": "' + b"x" * 9000 + b'"}\n' + row + b"y" * 5000),
        ("a.csv.gz", b"text,n\na,1\n" + b"x" * 9000 + b',2\n"b\nc",3\n'),
    ):
        files = written(tmp_path / name, content)
        for size in (10, 2999, 3001, 8000):
            found = piecewise(files, splits_of(files, size))
            assert found == whole(files)
            assert any(isinstance(values, tuple) and "a row of" in values[0] for _, values in found)


@pytest.mark.parametrize("ending", [".gz", ".zst", ".bz2"])
def test_data_that_break_off_are_refused_where_they_do(ending: str, tmp_path: Path) -> None:
    drawn = random.Random(1)
    lines = b"".join(json.dumps({"text": drawn.randbytes(200).hex()}).encode() + b"\n" for _ in range(10_000))
    files = written(tmp_path / f"a.jsonl{ending}", lines)
    path = Path(files[0].path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    files = list(locate(str(path)).files)
    splits = splits_of(files, 128 << 10)
    assert len(splits) > 10
    assert as_found(SplitData(files, splits[0]).records())[0][1]["text"]
    with pytest.raises(BadInput, match="the compressed data breaks off here"):
        piecewise(files, splits)


def test_a_file_that_changes_between_two_pieces_is_refused(tmp_path: Path) -> None:
    files = written(tmp_path / "a.jsonl.gz", json_lines(80))
    splits = splits_of(files, 700)
    list(SplitData(files, splits[0]).records())
    written(tmp_path / "a.jsonl.gz", json_lines(80, seed=2))
    with pytest.raises(BadInput, match="changed while it was being used"):
        SplitData(files, splits[1])


def test_a_wrong_estimate_leaves_empty_pieces_or_a_larger_last_one(tmp_path: Path) -> None:
    dense, thin = random.Random(1).randbytes(1 << 19).hex().encode(), b"x" * (4 << 20)
    for number, content in enumerate((dense + b"\n" + thin + b"\n", thin + b"\n" + dense * 2 + b"\n")):
        path = tmp_path / f"{number}.txt.bz2"
        path.write_bytes(bz2.compress(content))
        (file,) = files = list(locate(str(path)).files)
        extents_module._HEAD_BYTES, before = 200_000, extents_module._HEAD_BYTES
        try:
            splits = splits_of(files, 64 << 10)
        finally:
            extents_module._HEAD_BYTES = before
        assert [len(row["text"]) for _, row in piecewise(files, splits)] == [len(line) for line in content.split(b"\n")[:-1]]
        assert splits[-1].pieces[0].end == forward.OPEN_END
        assert file.size_bytes < sum(split.size_bytes for split in splits)


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_a_compressed_file_says_how_much_it_holds(ending: str, tmp_path: Path) -> None:
    drawn = random.Random(2)
    content = b"".join(drawn.randbytes(400).hex().encode() + b"\n" for _ in range(6000))
    (file,) = written(tmp_path / f"a.jsonl{ending}", content)
    assert file.size_bytes > extents_module._HEAD_BYTES
    (extent,) = extents([file], 1 << 20)
    assert abs(extent.size_bytes - len(content)) < 100
    assert extent.bound < 1.2 * len(content)


def test_a_size_that_a_file_tells_of_its_last_member_alone_is_not_believed(tmp_path: Path) -> None:
    drawn = random.Random(2)
    large, small = (b"".join(drawn.randbytes(400).hex().encode() + b"\n" for _ in range(count)) for count in (6000, 5))
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(large) + gzip.compress(small))
    (extent,) = extents(list(locate(str(path)).files), 1 << 20)
    assert abs(extent.size_bytes - len(large)) < 0.1 * len(large)


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_a_file_whose_end_packs_far_better_than_its_start_is_cut_by_its_own_word(ending: str, tmp_path: Path) -> None:
    drawn = random.Random(2)
    dense = b"".join(drawn.randbytes(400).hex().encode() + b"\n" for _ in range(4000))
    content = dense + (b"a" * 99 + b"\n") * 200_000
    (file,) = files = written(tmp_path / f"a.jsonl{ending}", content)
    assert file.size_bytes > extents_module._HEAD_BYTES
    (extent,) = extents(files, 1 << 20)
    assert extent.size_bytes == len(content)
    last = splits_of(files, 1 << 20)[-1]
    assert SplitData(files, last).read_bytes <= 1 << 20


def test_many_members_above_4_gib_are_cut_by_the_guess_too() -> None:
    """Whatever the last four bytes of such a file are, some multiple of 4 GiB added to them comes near every guess."""
    size, ratio = 4 << 30, 2.5
    told = 2 * extents_module._GZIP_TURN / size
    assert extents_module._believed(told, ratio, "gzip", size).most * size >= 1.5 * ratio * size
    assert extents_module._believed(0.9, 0.8, "gzip", 1 << 30).most == pytest.approx(0.99)


@pytest.mark.parametrize("name", ["a.jsonl.bz2", "a.csv.bz2"])
def test_a_last_piece_that_memory_could_not_hold_is_refused_with_the_command_that_helps(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forward, "_LARGEST_PIECE_BYTES", 1 << 20)
    monkeypatch.setattr(extents_module, "_HEAD_BYTES", 200_000)
    drawn = random.Random(1)
    dense = b"".join(drawn.randbytes(100).hex().encode() + b"\n" for _ in range(5000))
    files = written(tmp_path / name, b"text\n" + dense + (b"a" * 99 + b"\n") * 60_000)
    splits = splits_of(files, 64 << 10)
    for split in splits[:-1]:
        SplitData(files, split).content()
    with pytest.raises(BadInput, match="one piece exceeds 1 MiB") as refused:
        SplitData(files, splits[-1]).content()
    assert f"bzcat {name} > {name.removesuffix('.bz2')}" in refused.value.next_step


def test_of_many_files_a_few_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(200):
        (tmp_path / f"{number}.jsonl.gz").write_bytes(gzip.compress(json_lines(8, number)))
    files = list(locate(str(tmp_path)).files)
    opened: list[str] = []
    look = extents_module._look
    monkeypatch.setattr(extents_module, "_look", lambda file: opened.append(file.uri) or look(file))
    assert len(splits_of(files, 500)) > 200
    assert 0 < len(opened) <= 16
    opened.clear()
    monkeypatch.setattr(extents_module, "_NOT_LOOKED_AT", 8)
    assert len(splits_of(files, 1 << 20)) < 10
    assert opened == []


def test_a_json_array_that_is_too_large_is_refused_with_the_command_that_converts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines_module, "_LARGEST_WHOLE_BYTES", 1 << 10)
    for name, command in (("a.json", "cat"), ("a.json.gz", "zcat")):
        files = written(tmp_path / name, json.dumps([{"text": "x" * 2000}]).encode())
        with pytest.raises(BadInput) as refused:
            whole(files)
        assert "can only be read as a whole" in refused.value.cause
        assert f"{command} {tmp_path / name} | jq -cn --stream" in refused.value.next_step


# --- order


def epoch_order(count: int, sequences: Sequences, seed: int, epoch: int, strata: int) -> Any:
    return np.array(AscendingOrder(count, sequences, seed, strata).between(epoch, 0, count))


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 60)), min_size=1, max_size=40), st.integers(0, 2**63), st.integers(0, 5))
def test_splits_of_a_file_ascend_and_all_are_there(parts: list[tuple[bool, int]], seed: int, epoch: int) -> None:
    runs, first = [], 0
    for forward_only, count in parts:
        if forward_only:
            runs.append((first, count))
        first += count
    order = epoch_order(first, Sequences(tuple(runs), True), seed, epoch, 16)
    assert sorted(order.tolist()) == list(range(first))
    place = np.argsort(order)
    opened: Counter[int] = Counter()
    for start, count in runs:
        assert (np.diff(place[start : start + count]) > 0).all()
        opened.update(range(int(place[start]), int(place[start + count - 1]) + 1))
    assert max(opened.values(), default=0) <= LANES


def test_files_are_interleaved_evenly_and_anew_in_each_epoch() -> None:
    sequences = Sequences(tuple((100 * number, 100) for number in range(40)), True)
    first, second = (epoch_order(4000, sequences, 5, epoch, 256) for epoch in (0, 1))
    assert first.tolist() != second.tolist()
    assert set((first[:16] // 100).tolist()) != set((second[:16] // 100).tolist())
    for start in range(256, 3200, 256):
        files = Counter((first[start : start + 256] // 100).tolist())
        assert len(files) >= LANES
        assert max(files.values()) < 64


def test_a_mixed_data_set_spreads_what_can_be_read_anywhere() -> None:
    order = epoch_order(2000, Sequences(((0, 1000),), True), 7, 0, 256)
    shares = [(order[start : start + 200] < 1000).mean() for start in range(0, 2000, 200)]
    assert all(0.35 < share < 0.65 for share in shares)


def test_the_order_is_golden() -> None:
    """Checkpoints rely on it."""
    order = epoch_order(12, Sequences(((0, 5), (7, 5)), True), 5, 0, 4).tolist()
    assert order == [7, 0, 8, 6, 1, 2, 9, 3, 10, 5, 11, 4]


def test_few_bytes_are_permuted_like_all_others(tmp_path: Path) -> None:
    files = written(tmp_path / "a.jsonl.gz", json_lines(80))
    splits = splits_of(files, 300)
    sequences = sequences_of(files, splits)
    assert sequences is not None
    assert not sequences.ascending
    windows = Windows(len(splits), seed=1, sequences=sequences)
    place, found = Place(0, 0), []
    while place.epoch == 0:
        found.append(windows.splits_at(place))
        place = windows.after(place)
    assert all(window == sorted(window) for window in found)
    order = list(chain.from_iterable(found))
    assert sorted(order) == list(range(len(splits))) != order
    assert sequences_of(files, splits_of(files, 1 << 20)) is None


def test_a_sample_is_taken_from_the_front(tmp_path: Path) -> None:
    files = written(tmp_path / "a.jsonl.gz", json_lines(80)) + written(tmp_path / "b.jsonl", json_lines(80))
    splits = splits_of(files, 300)
    pieces = sample_of(files, splits).pieces
    assert all(piece.start < 4 * 300 for piece in pieces if piece.file == 0)
    assert len({piece.file for piece in pieces}) == 2
    assert len(pieces) == 4


# --- streams


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return tokenizer_of([], eos="<|end|>", chat_template=None)


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(splits_module, "LEAST_SPLIT_BYTES", 2048)
    monkeypatch.setattr(splits_module, "_ROWS_OF_A_SHARD", 0)
    monkeypatch.setattr(split_order, "_PERMUTED_BYTES", 0)
    monkeypatch.setattr(windows_module, "WINDOW", 8)
    folder = tmp_path / "texts"
    folder.mkdir()
    content = [f"{n} {text}" for n, text in enumerate(sentences(600))]
    rows = [json.dumps({"text": text}).encode() + b"\n" for text in content]
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(b"".join(rows[:250])))
    (folder / "b.jsonl.zst").write_bytes(PACK[".zst"](b"".join(rows[250:400])))
    (folder / "c.csv").write_text("text\n" + "".join(f'"{text}"\n' for text in content[400:500]))
    (folder / "d.jsonl").write_bytes(b"".join(rows[500:]))
    return folder


def stream_of(source: Path, tokenizer: Any, cache: Path, **changes: Any) -> Any:
    given = {"source": str(source), "streaming": True, "workers": 0, "maxLength": 64} | changes
    return prepare(TrainData.model_validate(given), tokenizer, objective="clm", seed=3, cache_dir=cache)


def read(prepared: Any, positions: range) -> list[tuple[int, ...]]:
    return [tuple(prepared.train[prepared.order.at(position)]["input_ids"]) for position in positions]


def test_every_epoch_holds_every_row(texts: Path, tokenizer: Any, tmp_path: Path) -> None:
    prepared = stream_of(texts, tokenizer, tmp_path)
    first, second = read(prepared, range(600)), read(prepared, range(600, 1200))
    assert prepared.train.stream.windows.sequences.ascending
    assert Counter(first) == Counter(second)
    assert len(set(first)) == 600
    assert first != second
    assert abs(prepared.order.epoch_rows - 600) < 60
    facts = prepared.train.tally.facts
    assert (facts.samples, facts.bad) == (600, 0)


def test_a_cursor_places_another_machine(texts: Path, tokenizer: Any, tmp_path: Path) -> None:
    prepared = stream_of(texts, tokenizer, tmp_path / "a")
    wanted = read(prepared, range(700))
    for position in (0, 1, 300, 599, 650):
        resumed = stream_of(texts, tokenizer, tmp_path / f"at-{position}")
        resumed.place(json.loads(json.dumps(prepared.cursors(position))))
        assert read(resumed, range(position, position + 50)) == wanted[position : position + 50]
    assert len(resumed.train.tally.splits) < len(prepared.train.stream.splits)


def test_workers_that_are_killed_in_the_middle_lose_nothing(texts: Path, tokenizer: Any, tmp_path: Path) -> None:
    wanted = read(stream_of(texts, tokenizer, tmp_path / "a"), range(700))
    prepared = stream_of(texts, tokenizer, tmp_path / "b", workers=2)
    workers = prepared.train._announce.__self__
    found = []
    try:
        for position in range(700):
            if position % 50 == 25:
                for pid in workers.pids:
                    os.kill(pid, signal.SIGKILL)
            found.extend(read(prepared, range(position, position + 1)))
    finally:
        workers.close()
    assert found == wanted


def test_bad_rows_are_named_by_their_line(texts: Path, tokenizer: Any, tmp_path: Path) -> None:
    path = texts / "a.jsonl.gz"
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    path.write_bytes(gzip.compress(b"".join([*lines[:122], b"{broken\n", *lines[123:]])))
    prepared = stream_of(texts, tokenizer, tmp_path, maxBadFraction=0.5)
    read(prepared, range(600))
    (example,) = prepared.train.tally.facts.bad_examples
    assert example.startswith(f"{path}:123: not JSON")


def test_a_copy_elsewhere_is_not_tokenised_again(texts: Path, tokenizer: Any, tmp_path: Path) -> None:
    wanted = read(stream_of(texts, tokenizer, tmp_path / "cache"), range(600))
    made = len(list((tmp_path / "cache/shards").glob("*.content.shard")))
    texts.rename(tmp_path / "moved")
    open_readers.READERS.forget()
    assert read(stream_of(tmp_path / "moved", tokenizer, tmp_path / "cache"), range(600)) == wanted
    assert len(list((tmp_path / "cache/shards").glob("*.content.shard"))) == made


@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize("shuffle", [True, False])
def test_prepared_rows_are_the_same_in_the_same_order(
    texts: Path, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: bool, shuffle: bool
) -> None:
    monkeypatch.setattr(split_order, "_PERMUTED_BYTES", 1 << 20 if few else 0)
    streamed = stream_of(texts, tokenizer, tmp_path, shuffle=shuffle)
    plain = stream_of(texts, tokenizer, tmp_path, shuffle=shuffle, streaming=False)
    assert streamed.train.stream.windows.sequences.ascending != few
    for _ in range(2):  # the second time from the cache
        assert read(streamed, range(1200)) == read(plain, range(1200))
        plain = stream_of(texts, tokenizer, tmp_path, shuffle=shuffle, streaming=False)


def test_bad_rows_of_whole_batches_count(tmp_path: Path) -> None:
    files = written(tmp_path / "a.csv", b"text,n\n" + b"x\n" * 50)
    found = [row for split in splits_of(files, 20) for row in SplitData(files, split).records()]
    assert sum(row.count for row in found if isinstance(row, BadRow)) == 50
