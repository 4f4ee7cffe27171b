"""What the API of logs answers from a storage: everything once, in order, in bounded parts."""

from __future__ import annotations

import asyncio

import obstore
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from obstore.store import MemoryStore

from tuneyard.cluster.log_api import LogAnswer, LogQuery
from tuneyard.tracking.task_logs import Chunk
from tuneyard_operators.logs import log_reader as reading
from tuneyard_operators.logs.log_reader import last_lines, read_answer
from tuneyard_operators.logs.storage import LogStorage

Logs = dict[str, list[str]]
"""Per source the texts of its files."""
LINES = st.lists(
    st.text(st.characters(exclude_characters="\n", codec="utf-8"), max_size=12).map(lambda line: line + "\n"), min_size=1, max_size=4
)
LOGS = st.dictionaries(
    st.sampled_from(["driver", "rank-0", "rank-1", "rank-10", "trial-2-rank-0"]), st.lists(LINES.map("".join), max_size=6), max_size=5
)


def stored(logs: Logs) -> LogStorage:
    inner = MemoryStore()
    for source, texts in logs.items():
        for number, text in enumerate(texts, 1):
            obstore.put(inner, Chunk("train", 2, source, number).path, text.encode())
    return LogStorage("s3://bucket/job", "memory", inner)


def ask(storage: LogStorage, query: LogQuery) -> LogAnswer:
    return asyncio.run(read_answer(storage, "train", 2, query))


@given(LOGS, st.integers(1, 200))
@settings(max_examples=60)
def test_parts_by_cursor_are_the_whole(logs: Logs, limit_bytes: int) -> None:
    storage, read, cursors = stored(logs), dict.fromkeys(logs, ""), {}
    answer = ask(storage, LogQuery(limit_bytes=limit_bytes))
    while answer.parts:
        largest = max(len(text.encode()) for texts in logs.values() for text in texts)
        assert sum(len(text.encode()) for text in answer.parts.values()) <= max(limit_bytes, largest)
        for source, text in answer.parts.items():
            read[source] += text
        cursors = answer.cursors
        answer = ask(storage, LogQuery(limit_bytes=limit_bytes, cursors=cursors))
    assert read == {source: "".join(texts) for source, texts in logs.items()}
    assert cursors == {source: len(texts) for source, texts in logs.items() if texts}


@given(LOGS, st.integers(1, 30))
@settings(max_examples=60)
def test_a_tail_is_the_end(logs: Logs, lines: int) -> None:
    answer = ask(stored(logs), LogQuery(tail_lines=lines))
    whole = {source: "".join(texts).split("\n")[:-1] for source, texts in logs.items() if texts}
    assert {source: text.split("\n")[:-1][-lines:] for source, text in answer.parts.items()} == {
        source: text[-lines:] for source, text in whole.items()
    }
    assert answer.cursors == {source: len(texts) for source, texts in logs.items() if texts}


@given(st.text("ab\n", max_size=40), st.integers(1, 6), st.integers(1, 50))
def test_last_lines_are_whole_where_they_have_room(text: str, lines: int, most: int) -> None:
    kept = last_lines(text, lines, most)
    wanted = text.removesuffix("\n").split("\n")[-lines:]
    assert text.endswith(kept)
    assert len(kept) <= most
    if len("\n".join(wanted)) < most:
        assert kept.removesuffix("\n").split("\n") == wanted
    elif kept.count("\n") > 1:
        before = text[: len(text) - len(kept)]
        assert before == "" or before.endswith("\n")


def test_sources_alone_cost_no_file() -> None:
    answer = ask(stored({"rank-10": ["x\n"], "rank-2": ["x\n"]}), LogQuery(limit_bytes=0))
    assert (answer.sources, answer.parts, answer.more) == (("rank-2", "rank-10"), {}, False)


def test_folders_that_are_no_source_are_left_out() -> None:
    storage = stored({"rank-0": ["x\n"]})
    obstore.put(storage._inner, "logs/train/2/-odd/000001.log", b"x\n")
    obstore.put(storage._inner, f"logs/train/2/{'a' * 200}/000001.log", b"x\n")
    assert ask(storage, LogQuery()).sources == ("rank-0",)


def test_many_small_files_come_in_several_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_MOST_FILES", 10)
    storage = stored({"rank-0": [f"{number}\n" for number in range(25)]})
    first = ask(storage, LogQuery())
    assert (first.more, first.parts["rank-0"].count("\n")) == (True, 10)
    assert ask(storage, LogQuery(cursors={"rank-0": 20})).parts["rank-0"] == "20\n21\n22\n23\n24\n"
