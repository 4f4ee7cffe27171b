"""Windows of logs: whole lines, any offset, any size, and nothing outside of the job's folder."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneyard.console.local.log_files import SEARCHED, LogFile, before, logs_of, search, window

TEXTS = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=30), min_size=1, max_size=30)


def make_log(folder: Path, *pieces: bytes) -> LogFile:
    paths = [folder / f"{index}.log" for index in range(len(pieces))]
    for path, piece in zip(paths, pieces, strict=True):
        path.write_bytes(piece)
    return LogFile("rank-0", [(path, len(piece)) for path, piece in zip(paths, pieces, strict=True)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@given(lines=TEXTS, length=st.integers(150, 400), cut=st.integers(0, 900))
def test_reading_on_from_each_window_gives_the_whole_log_once(folder: Path, lines: list[str], length: int, cut: int) -> None:
    raw = "".join(f"{line}\n" for line in lines).encode()
    log = make_log(folder, raw[:cut], raw[cut:])
    seen, at = [], 0
    while at < log.size:
        part = window(log, at, length)
        assert part.start == at
        assert part.end > at
        seen += part.lines
        at = part.end
    assert seen == lines


@given(lines=TEXTS, at=st.integers(-10, 2_000), length=st.integers(150, 400))
def test_a_window_starts_with_the_line_of_its_offset(folder: Path, lines: list[str], at: int, length: int) -> None:
    raw = "".join(f"{line}\n" for line in lines).encode()
    part = window(make_log(folder, raw), at, length)
    assert part.start == 0 or part.start == len(raw) or raw[part.start - 1 : part.start] == b"\n"
    assert part.start <= max(0, at)


def test_the_end_of_a_log_is_shown_without_an_offset(tmp_path: Path) -> None:
    log = make_log(tmp_path, b"".join(b"line %d\n" % n for n in range(1000)))
    shown = window(log, None, 100)
    assert shown.lines[-1] == "line 999"
    assert shown.end == shown.size
    assert window(log, before(log, shown.start, 100), 100).end >= shown.start


def test_a_search_finds_a_text_that_lies_across_two_files_and_two_reads(tmp_path: Path) -> None:
    log = make_log(tmp_path, b"x" * (1 << 20) + b"\nloss is n", b"An now\nend\n")
    assert search(log, "IS NAN").at == (1 << 20) + 1
    assert search(log, "absent").at is None
    assert search(log, "end", at=3).at == log.size - 4


def test_a_search_stops_at_its_limit_and_says_where(tmp_path: Path) -> None:
    log = make_log(tmp_path, b"y\n" * 5000 + b"needle\n")
    first = search(log, "needle", limit=4000)
    assert (first.at, first.reached) == (None, 4000)
    assert search(log, "needle", at=first.reached).at == 10_000


def test_a_line_without_an_end_is_shown_in_parts(tmp_path: Path) -> None:
    log = make_log(tmp_path, b"z" * 10_000_000)
    part = window(log, 5_000_000)
    assert part.start == 5_000_000
    assert "64" in part.lines[0] or "65" in part.lines[0]


def test_a_progress_bar_shows_its_last_state(tmp_path: Path) -> None:
    assert window(make_log(tmp_path, b"10%\r20%\r100%\ndone\r\n"), 0).lines == ["100%", "done"]


def test_logs_are_found_in_both_layouts_in_the_order_of_ranks(tmp_path: Path) -> None:
    for name in ("train-rank-10.log", "train-rank-2.log", "judge-engine-0.log", "notes.txt"):
        (tmp_path / "logs").mkdir(exist_ok=True)
        (tmp_path / "logs" / name).write_text("x\n")
    chunks = tmp_path / "logs" / "train" / "2" / "rank-3"
    chunks.mkdir(parents=True)
    (chunks / "000002.log").write_text("b\n")
    (chunks / "000001.log").write_text("a\n")
    found = {log.label: log for log in logs_of(tmp_path)}
    assert [label for label in found if label.startswith("train-rank")] == ["train-rank-2", "train-rank-10"]
    assert window(found["train · attempt 2 · rank-3"], 0).lines == ["a", "b"]


def test_links_out_of_the_folder_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key.log").write_text("secret\n")
    job = tmp_path / "job"
    (job / "logs").mkdir(parents=True)
    (job / "logs" / "rank-0.log").symlink_to(tmp_path / "secret" / "key.log")
    (job / "logs" / "folder").symlink_to(tmp_path / "secret")
    assert logs_of(job) == []
    other = tmp_path / "other"
    other.mkdir()
    (other / "logs").symlink_to(tmp_path / "secret")
    assert logs_of(other) == []


def test_a_log_of_a_gigabyte_is_read_by_the_window(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.log"
    with path.open("wb") as file:
        file.truncate(1 << 30)  # takes no space
        file.seek(1 << 30)
        file.write(b"\nthe end\n")
    log = LogFile("rank-0", [(path, path.stat().st_size)])
    tracemalloc.start()
    assert window(log).lines[-1] == "the end"
    window(log, 1 << 29)
    assert search(log, "absent", at=1 << 29).reached == (1 << 29) + SEARCHED
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20
