"""The index of logs in a job's output."""

from __future__ import annotations

from pathlib import Path

from tuneyard.storage import open_store
from tuneyard.tracking.task_logs import Chunk, LogReader


def write(folder: Path, *chunks: tuple[Chunk, str]) -> None:
    store = open_store(str(folder))
    for chunk, text in chunks:
        store.create(chunk.path, text.encode())


def test_a_path_tells_everything() -> None:
    chunk = Chunk("tune", 2, "rank-10", 7)
    assert chunk.path == "logs/tune/2/rank-10/000007.log"
    assert Chunk.from_path(chunk.path) == chunk
    assert Chunk.from_path("logs/setup.log") is None
    assert Chunk.from_path("logs/tune/2/preflight/4f") is None


def test_sources_of_an_attempt_are_listed_in_order(tmp_path: Path) -> None:
    write(tmp_path, *[(Chunk("tune", attempt, f"rank-{rank}", 1), "x\n") for attempt in (1, 10, 2) for rank in (0, 2, 10)])
    write(tmp_path, (Chunk("tune", 2, "driver", 1), "x\n"), (Chunk("other", 4, "rank-0", 1), "x\n"))
    store = open_store(str(tmp_path))
    assert LogReader(store, "tune", 2).sources() == ["driver", "rank-0", "rank-2", "rank-10"]
    assert LogReader(store, "tune", 3).sources() == []


def test_the_tail_reads_no_more_than_it_needs(tmp_path: Path) -> None:
    write(tmp_path, *[(Chunk("tune", 1, "rank-0", number), f"a{number}\nb{number}\n") for number in (1, 2, 3)])
    reader = LogReader(open_store(str(tmp_path)), "tune", 1)
    assert reader.tail("rank-0", 3).text == "b2\na3\nb3\n"
    assert reader.tail("rank-0", 3).cursor == 3
    assert reader.tail("rank-0", 100).text.startswith("a1")
    assert reader.tail("rank-1", 3).text == ""
