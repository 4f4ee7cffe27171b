"""Streamed rows: each exactly once per epoch, in an order that depends on nothing but seed and data, whatever is killed meanwhile."""

import json
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.builders.models import CHAT_TEMPLATE, sentences, tokenizer_of

from tuneyard.api import BadInput, TrainData
from tuneyard.data import prepare, read_so_far, shard_files
from tuneyard.data.records import Record, read_records
from tuneyard.data.sources import locate
from tuneyard.data.stream import Done, published
from tuneyard.data.stream import claims as claims_module
from tuneyard.data.stream import rows as rows_module
from tuneyard.data.stream import splits as splits_module
from tuneyard.data.stream import windows as windows_module
from tuneyard.data.stream.reading import SplitData
from tuneyard.data.stream.splits import splits_of
from tuneyard.data.stream.windows import Place, Windows

Data = dict[str, Any]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return tokenizer_of(["<|user|>", "<|assistant|>", "<|system|>"], eos="<|end|>", chat_template=CHAT_TEMPLATE)


@pytest.fixture(autouse=True)
def small_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splits_module, "LEAST_SPLIT_BYTES", 2048)
    monkeypatch.setattr(splits_module, "_ROWS_OF_A_SHARD", 0)
    monkeypatch.setattr(windows_module, "_FIRST_BYTES", 2048)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": f"{i} {text}"}) + "\n" for i, text in enumerate(sentences(400))))
    return path


def stream_of(source: Path | str, tokenizer: Any, cache: Path, **changes: Any) -> Any:
    given = {"source": str(source), "streaming": True, "workers": 0, "maxLength": 64} | changes
    return prepare(TrainData.model_validate(given), tokenizer, objective="clm", seed=3, cache_dir=cache)


def read(prepared: Any, positions: range) -> list[tuple[int, ...]]:
    return [tuple(prepared.train[prepared.order.at(position)]["input_ids"]) for position in positions]


def rows_of_an_epoch(prepared: Any) -> int:
    """Counted, not estimated."""
    rows, position = prepared.train, 0
    while rows._window(position).place.epoch == 0:
        position += 1
    return position


@pytest.mark.parametrize("seed", range(3))
def test_splits_hold_every_row_exactly_once(tmp_path: Path, seed: int) -> None:
    random_ = random.Random(seed)
    for number in range(random_.randint(1, 5)):
        lengths = random_.choices([0, 1, 50], k=random_.randint(1, 60))
        lengths.insert(random_.randint(0, len(lengths)), 4000)
        lines = [json.dumps({"text": "x" * length}) for length in lengths]
        if random_.random() < 0.5:
            lines[len(lines) // 2] = random_.choice(["", "  ", "{broken", "[]", "\x00"])
        end = random_.choice(["\n", "\r\n"])
        (tmp_path / f"{number}.jsonl").write_bytes(
            random_.choice([b"", b"\xef\xbb\xbf"]) + end.join(lines).encode() + random_.choice([b"", b"\n"])
        )
    files = locate(str(tmp_path)).files
    wanted = [row.values if isinstance(row, Record) else row.reason for row in read_records(files)]
    for size in (1, 7, 100, 2048, 1 << 20):
        splits = splits_of(files, size)
        found = [row for split in splits for row in SplitData(files, split).records()]
        assert [row.values if isinstance(row, Record) else row.reason for row in found] == wanted
        assert sum(split.size_bytes for split in splits) == sum(file.size_bytes for file in files)


def test_parquet_is_cut_by_row_groups(tmp_path: Path) -> None:
    table = pa.table({"text": [f"text {i}" for i in range(1000)]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=100)
    files = locate(str(tmp_path)).files
    splits = splits_of(files, 1500)
    assert len(splits) > 3
    rows = [row for split in splits for row in SplitData(files, split).records()]
    assert [row.values["text"] for row in rows if isinstance(row, Record)] == table["text"].to_pylist()


def everything(row: dict[str, Any]) -> dict[str, list[int] | int]:
    return {name: value if isinstance(value, int) else np.asarray(value).tolist() for name, value in row.items()}


def as_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    pq.write_table(pa.Table.from_pylist(rows), path.with_suffix(".parquet"), row_group_size=50)
    path.unlink()


def as_many_files(path: Path, rows: list[dict[str, Any]]) -> None:
    for number, row in enumerate(rows):
        (path.parent / f"{number:04}.jsonl").write_text(json.dumps(row) + "\n")
    path.unlink()


def as_csv_and_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    (path.parent / "a.csv").write_text("text\n" + "".join(f'"{row["text"]}"\n' for row in rows[:150]))
    path.write_text("{broken\n" + "".join(json.dumps(row) + "\n" for row in rows[150:]))


@pytest.mark.parametrize("write", [None, as_parquet, as_many_files, as_csv_and_lines])
@pytest.mark.parametrize("settings", [{}, {"pack": True}, {"shuffle": False}, {"pack": True, "validationFraction": 0.2}])
def test_streamed_and_prepared_data_give_the_same_rows_in_the_same_order(
    texts: Path, tokenizer: Any, tmp_path: Path, write: Any, settings: Data
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    path = texts.rename(folder / "texts.jsonl")
    if write is not None:
        write(path, [json.loads(line) for line in path.read_text().splitlines()])
    streamed = stream_of(folder, tokenizer, tmp_path / "cache", **settings)
    whole = stream_of(folder, tokenizer, tmp_path / "cache", **settings, streaming=False)
    assert len(whole.train) == rows_of_an_epoch(streamed)
    for position in range(int(2.5 * len(whole.train))):
        row = streamed.train[streamed.order.at(position)]
        assert everything(row) == everything(whole.train[whole.order.at(position)])
    assert streamed.train.tally.facts.tokens == whole.report.tokens


def test_every_epoch_holds_every_row_in_an_order_of_its_own(texts: Path, tokenizer: Any, tmp_path: Path) -> None:
    prepared = stream_of(texts, tokenizer, tmp_path)
    count = rows_of_an_epoch(prepared)
    first, second = read(prepared, range(count)), read(prepared, range(count, 2 * count))
    assert Counter(first) == Counter(second)
    assert first != second
    assert abs(prepared.order.epoch_rows - count) <= 0.2 * count


def test_unshuffled_rows_come_as_they_lie(texts: Path, tokenizer: Any, tmp_path: Path) -> None:
    prepared = stream_of(texts, tokenizer, tmp_path, shuffle=False)
    lines = [json.loads(line)["text"] for line in texts.read_text().splitlines()]
    assert [tokenizer.decode(ids, skip_special_tokens=True) for ids in read(prepared, range(400))] == lines


def test_a_cursor_places_another_process_without_reading_what_lies_before(
    texts: Path, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows_module, "WINDOW", 4)
    prepared = stream_of(texts, tokenizer, tmp_path / "a")
    wanted = read(prepared, range(1000))
    for position in (0, 1, 17, 250, 399, 400, 777):
        resumed = stream_of(texts, tokenizer, tmp_path / f"at-{position}")
        resumed.place(json.loads(json.dumps(prepared.cursors(position))))
        assert read(resumed, range(position, position + 100)) == wanted[position : position + 100]
    assert len(resumed.train.tally.splits) < len(prepared.train.stream.splits)


def test_a_new_machine_builds_no_more_than_the_shards_of_the_rows_that_it_reads(texts: Path, tokenizer: Any, tmp_path: Path) -> None:
    prepared = stream_of(texts, tokenizer, tmp_path / "a")
    wanted = read(prepared, range(230, 234))
    cursors = json.loads(json.dumps(prepared.cursors(230)))
    resumed = stream_of(texts, tokenizer, tmp_path / "b")
    resumed.place(cursors)
    assert read(resumed, range(230, 234)) == wanted
    assert len(resumed.train.tally.splits) <= 4 < len(prepared.train.stream.splits)


def test_cursors_without_the_rows_of_splits_are_taken(texts: Path, tokenizer: Any, tmp_path: Path) -> None:
    prepared = stream_of(texts, tokenizer, tmp_path / "a")
    wanted, cursors = read(prepared, range(230, 260)), prepared.cursors(230)
    cursors[""].pop("rows")  # written before there were any
    resumed = stream_of(texts, tokenizer, tmp_path / "b")
    resumed.place(cursors)
    assert read(resumed, range(230, 260)) == wanted


def test_bad_rows_are_counted_of_all_splits_however_a_run_was_resumed(texts: Path, tokenizer: Any, tmp_path: Path) -> None:
    lines = texts.read_text().splitlines()
    texts.write_text("\n".join(line if number % 90 else "{broken" for number, line in enumerate(lines)) + "\n")
    prepared = stream_of(texts, tokenizer, tmp_path / "a", maxBadFraction=0.5)
    count = rows_of_an_epoch(prepared)
    resumed = stream_of(texts, tokenizer, tmp_path / "a", maxBadFraction=0.5)
    resumed.place(prepared.cursors(count // 2))
    read(resumed, range(count - 1, count + 1))
    assert resumed.cursors(count + 2)[""]["read"] == prepared.cursors(count + 2)[""]["read"]


def test_a_cursor_of_other_data_is_refused(texts: Path, tokenizer: Any, tmp_path: Path) -> None:
    cursors = stream_of(texts, tokenizer, tmp_path).cursors(100)
    content = texts.read_text()
    texts.write_text(content.replace("0 ", "9 ", 1))
    with pytest.raises(BadInput, match="has other rows than when the checkpoint was written: as many bytes, and a sample of them differs"):
        stream_of(texts, tokenizer, tmp_path).place(cursors)
    texts.write_text(content)
    stream_of(texts, tokenizer, tmp_path).place(cursors)


def test_a_file_that_changes_while_it_is_used_is_refused(texts: Path, tokenizer: Any, tmp_path: Path) -> None:
    prepared = stream_of(texts, tokenizer, tmp_path)
    assert prepared.train[0]
    texts.write_text(texts.read_text())
    with pytest.raises(BadInput, match="changed while it was being used"):
        read(prepared, range(400))


def test_bad_rows_are_counted_and_named_by_their_byte(texts: Path, tokenizer: Any, tmp_path: Path) -> None:
    lines = texts.read_text().splitlines(keepends=True)
    at = sum(map(len, lines[:7]))
    texts.write_text("".join([*lines[:7], "{broken\n", *lines[8:]]))
    prepared = stream_of(texts, tokenizer, tmp_path, maxBadFraction=0.5)
    read(prepared, range(rows_of_an_epoch(prepared)))
    facts = prepared.train.tally.facts
    assert (facts.samples, facts.bad) == (399, 1)
    assert facts.bad_examples[0].startswith(f"{texts}:byte {at}: not JSON")
    strict = stream_of(texts, tokenizer, tmp_path, maxBadFraction=0.001)
    with pytest.raises(BadInput, match="1 of 400 rows are bad"):
        rows_of_an_epoch(strict)


def test_held_out_samples_are_never_trained_on(texts: Path, tokenizer: Any, tmp_path: Path) -> None:
    prepared = stream_of(texts, tokenizer, tmp_path, validationFraction=0.2)
    trained = set(read(prepared, range(rows_of_an_epoch(prepared))))
    held_out = {tuple(row["input_ids"]) for row in (prepared.validation[i] for i in range(len(prepared.validation)))}
    assert held_out
    assert not trained & held_out
    assert 40 < prepared.train.tally.facts.held_out < 120


def test_a_damaged_or_missing_shard_is_built_again(texts: Path, tokenizer: Any, tmp_path: Path) -> None:
    wanted = read(stream_of(texts, tokenizer, tmp_path), range(500))
    shards = sorted((tmp_path / "shards").glob("*.shard"))
    for number, path in enumerate(shards):
        if number % 3 == 0:
            path.unlink()
        elif number % 3 == 1:
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 1
            path.unlink()
            path.write_bytes(content)
        else:
            content = path.read_bytes()
            path.unlink()
            path.write_bytes(content[:-10])
    assert read(stream_of(texts, tokenizer, tmp_path), range(500)) == wanted


def test_a_moved_copy_is_not_tokenised_again(texts: Path, tokenizer: Any, tmp_path: Path) -> None:
    wanted = read(stream_of(texts, tokenizer, tmp_path / "cache"), range(300))
    made = len(list((tmp_path / "cache/shards").glob("*.content.shard")))
    copy = tmp_path / "elsewhere.jsonl"
    copy.write_bytes(texts.read_bytes())
    assert read(stream_of(copy, tokenizer, tmp_path / "cache"), range(300)) == wanted
    assert len(list((tmp_path / "cache/shards").glob("*.content.shard"))) == made


def test_workers_that_are_killed_all_the_time_lose_nothing(texts: Path, tokenizer: Any, tmp_path: Path) -> None:
    wanted = read(stream_of(texts, tokenizer, tmp_path / "a"), range(900))
    prepared = stream_of(texts, tokenizer, tmp_path / "b", workers=2)
    workers = prepared.train._announce.__self__
    found, random_ = [], random.Random(1)
    try:
        for position in range(900):
            if position % 9 == 0:
                for pid in workers.pids:
                    os.kill(pid, random_.choice([signal.SIGKILL, signal.SIGTERM]))
            found.extend(read(prepared, range(position, position + 1)))
        assert len(workers.pids) == 2
    finally:
        workers.close()
    assert found == wanted
    assert workers.pids == []


def test_a_worker_that_hangs_loses_its_split(texts: Path, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = read(stream_of(texts, tokenizer, tmp_path / "a"), range(300))
    monkeypatch.setattr(rows_module, "_PATIENCE_S", 0.3)
    prepared = stream_of(texts, tokenizer, tmp_path / "b")
    stream = prepared.train.stream
    child = os.fork()
    if child == 0:
        for split in stream.splits:
            stream.claims.take(split.number)
        (tmp_path / "claimed").touch()
        time.sleep(60)
        os._exit(0)
    while not (tmp_path / "claimed").exists():
        time.sleep(0.01)
    try:
        assert read(prepared, range(20)) == wanted[:20]
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert read(prepared, range(300)) == wanted


@pytest.mark.parametrize("splits", [1, 2, 5, 255, 256, 257, 700])
def test_windows_hold_every_split_once_per_epoch(splits: int) -> None:
    windows, place, seen = Windows(splits, seed=4), Place(0, 0), [Counter[int](), Counter[int]()]
    while place.epoch < 2:
        seen[place.epoch].update(windows.splits_at(place))
        place = windows.after(place)
    assert seen == [Counter(range(splits))] * 2


def test_the_order_of_windows_is_golden() -> None:
    """Checkpoints rely on it."""
    windows = Windows(10, seed=5)
    assert [windows.splits_at(Place(0, window)) for window in range(windows.count(0))] == GOLDEN


def test_a_stream_without_any_usable_row_is_refused(tmp_path: Path, tokenizer: Any) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"text": ""}\n' * 50)
    with pytest.raises(BadInput, match="can be used"):
        stream_of(path, tokenizer, tmp_path)


def test_rows_of_a_mixture_with_a_streamed_part(texts: Path, tokenizer: Any, tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text("".join(json.dumps({"text": f"other {i}"}) + "\n" for i in range(50)))
    mix = [{"source": str(texts), "weight": 3}, {"source": str(other), "weight": 1}]
    given = {"mix": mix, "streaming": True, "workers": 0, "maxLength": 64}

    def prepared() -> Any:
        return prepare(TrainData.model_validate(given), tokenizer, objective="clm", seed=3, cache_dir=tmp_path / "cache")

    first = prepared()
    wanted = read(first, range(600))
    small = {tuple(row["input_ids"]) for row in (first.train[i * 2 + 1] for i in range(50))}
    assert sum(row in small for row in wanted) == 150
    report = read_so_far(first)
    assert (report.streamed, report.rows) == (True, 450)
    assert report.tokens == sum(len(row) for row in {tuple(row) for row in wanted})
    assert [part["tokens"] > 0 and 0.1 < part["packing_efficiency"] <= 1 for part in report.parts] == [True, True]
    again = prepared()
    again.place(json.loads(json.dumps(first.cursors(333))))
    assert read(again, range(333, 600)) == wanted[333:]


GOLDEN = [[6], [1], [8, 3], [5, 0, 7, 2], [4, 9]]


@pytest.mark.parametrize("streaming", [False, True])
def test_the_same_bytes_under_another_ending_are_other_rows(texts: Path, tokenizer: Any, tmp_path: Path, streaming: bool) -> None:
    plain = texts.with_name("texts.txt")
    plain.write_bytes(texts.read_bytes())
    for source in (texts, plain):
        prepared = stream_of(source, tokenizer, tmp_path / "cache", shuffle=False, streaming=streaming)
        assert tokenizer.decode(prepared.train[0]["input_ids"]).startswith("{") == (source is plain)


def test_the_border_between_two_files_is_part_of_the_content(tokenizer: Any, tmp_path: Path) -> None:
    for folder, files in {"one": ["a\n|b\n"], "two": ["a\n", "b\n"]}.items():
        (tmp_path / folder).mkdir()
        for number, content in enumerate(files):
            (tmp_path / folder / f"{number}.txt").write_text(content)
    one, two = (stream_of(tmp_path / folder, tokenizer, tmp_path / "cache", shuffle=False) for folder in ("one", "two"))
    assert [tokenizer.decode(each.train[1]["input_ids"]) for each in (one, two)] == ["|b<|end|>", "b<|end|>"]


def test_a_shard_that_another_process_removes_meanwhile_is_built_again(
    texts: Path, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, lost = os.link, 0

    def link_late(there: Path, name: Path) -> None:
        nonlocal lost
        if lost < 5:
            lost += 1
            Path(there).unlink()
        link(there, name)

    monkeypatch.setattr(os, "link", link_late)
    prepared = stream_of(texts, tokenizer, tmp_path)
    assert len(read(prepared, range(400))) == 400
    assert lost == 5


def test_shards_that_cannot_be_removed_end_the_search_for_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:  # noqa: ARG001 - pathlib's signature
        raise PermissionError(13, "not yours", str(path))

    (tmp_path / "a.shard").touch()
    monkeypatch.setattr(Path, "unlink", refuse)
    monkeypatch.setattr(shard_files, "_free", lambda _folder: 0)
    shard_files.make_room(tmp_path, 1)


def test_nobody_waits_where_there_are_no_locks(texts: Path, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: Any) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(claims_module.fcntl, "lockf", no_locks)
    prepared = stream_of(texts, tokenizer, tmp_path)
    assert len(read(prepared, range(400))) == 400
    assert prepared.train.tally.waited_s < 30


def test_going_on_in_a_bad_part_of_good_data_is_not_refused(texts: Path, tokenizer: Any, tmp_path: Path) -> None:
    lines = texts.read_text().splitlines(keepends=True)
    texts.write_text("".join(lines) + "".join(line if i % 2 else "{broken\n" for i, line in enumerate(lines[:40])))
    data = {"shuffle": False, "maxBadFraction": 0.1}
    wanted = read(whole := stream_of(texts, tokenizer, tmp_path, **data), range(500))
    resumed = stream_of(texts, tokenizer, tmp_path, **data)
    resumed.place(json.loads(json.dumps(whole.cursors(415))))
    assert read(resumed, range(415, 500)) == wanted[415:]


def test_shards_that_were_removed_are_wanted_again_in_the_next_epoch() -> None:
    done = Done()
    done.at(Place(0, 3)).add(7)
    assert done.at(Place(0, 4)) == {7}
    assert done.at(Place(1, 0)) == set()


def test_parts_of_a_mixture_are_published_apart(texts: Path, tokenizer: Any, tmp_path: Path) -> None:
    texts.with_name("more.jsonl").write_text("".join(texts.read_text().splitlines(keepends=True)[:200]))
    parts = [{"source": str(texts)}, {"source": str(texts.with_name("more.jsonl"))}]
    spec = TrainData.model_validate({"mix": parts, "streaming": True, "maxLength": 64})
    prepare(spec, tokenizer, objective="clm", seed=3, cache_dir=tmp_path, service=tmp_path / "service")
    assert len(published(tmp_path / "service", {})) == 2


def test_a_stream_of_one_split_is_the_same_whoever_built_its_sample(texts: Path, tokenizer: Any, tmp_path: Path) -> None:
    """The sample of a small stream is its only split: a rank builds the one and a data worker the other, at the same time."""
    short = tmp_path / "short.jsonl"
    short.write_text("".join(texts.read_text().splitlines(keepends=True)[:20]))
    first = stream_of(short, tokenizer, tmp_path / "cache")
    assert len(first.train.stream.splits) == 1
    cursor = first.cursors(7)
    for shard in (tmp_path / "cache/shards").glob("*.shard"):
        shard.unlink()
    first.train.stream.build(first.train.stream.splits[0])
    again = stream_of(short, tokenizer, tmp_path / "cache")
    again.place(cursor)
    assert read(again, range(7, 20)) == read(first, range(7, 20))


def test_a_byte_order_mark_inside_a_file_is_text_whatever_was_built_before(tokenizer: Any, tmp_path: Path) -> None:
    lines = "".join(f"line {i:06}\n" for i in range(160))  # a split of 1,920 bytes, then one that begins with the mark
    marked, joined = tmp_path / "marked.txt", tmp_path / "joined.txt"
    marked.write_bytes(b"\xef\xbb\xbf" + lines.encode() * 2)
    joined.write_bytes(lines.encode() * 2 + marked.read_bytes())
    size = joined.stat().st_size
    splits = splits_of(locate(str(joined)).files, 2048)
    alone = stream_of(joined, tokenizer, tmp_path / "alone", shuffle=False)
    first = stream_of(marked, tokenizer, tmp_path / "both", shuffle=False)
    read(first, range(320))
    after = stream_of(joined, tokenizer, tmp_path / "both", shuffle=False)
    assert size == sum(split.size_bytes for split in splits)
    assert read(after, range(640)) == read(alone, range(640))


def test_windows_far_behind_are_forgotten(tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "_KEPT_WINDOWS", 16)
    path = tmp_path / "few.jsonl"
    path.write_text('{"text": "one"}\n{"text": "two"}\n')
    rows = stream_of(path, tokenizer, tmp_path).train
    found = [tuple(rows[position]["input_ids"]) for position in range(1000)]
    assert len(set(found)) == 2
    assert all({found[i], found[i + 1]} == set(found) for i in range(0, 1000, 2))
    assert len(rows._starts) == len(rows._places) <= 18
    assert max(map(len, (rows._windows, rows._before, rows._split_numbers))) <= 18
    assert [tuple(rows[position]["input_ids"]) for position in range(990, 1000)] == found[990:]


def test_rows_that_are_all_held_out_are_told_as_that(texts: Path, tokenizer: Any, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="held out for evaluation") as refused:
        stream_of(texts, tokenizer, tmp_path, validationFraction=0.9999)
    assert "validationFraction" in refused.value.next_step


@pytest.mark.parametrize("pack", [False, True])
def test_a_checkpoint_of_prepared_rows_goes_on_with_the_same_rows_or_not_at_all(
    texts: Path, tokenizer: Any, tmp_path: Path, pack: bool
) -> None:
    prepared = stream_of(texts, tokenizer, tmp_path, streaming=False, pack=pack)
    cursors = json.loads(json.dumps(prepared.cursors(50)))
    prepared.place(cursors)
    with pytest.raises(BadInput, match="took rows in another order"):
        prepared.place({})  # of a version before rows were packed split by split
    texts.write_text("".join(texts.read_text().splitlines(keepends=True)[:390]))
    with pytest.raises(BadInput, match="has other rows"):
        stream_of(texts, tokenizer, tmp_path, streaming=False, pack=pack).place(cursors)
    texts.write_text("".join(texts.read_text().splitlines(keepends=True)[:20]))
    stream_of(texts, tokenizer, tmp_path, streaming=False, pack=pack).place({})  # one split, whose order is that of every version
