"""Questions and answers of the API of logs: what a URL may hold, and that both sides mean the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneyard.api import BadInput
from tuneyard.cluster.log_api import LARGEST_ANSWER, LogAnswer, LogQuery, cursor_of, cursors_of

SOURCES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
CURSORS = st.dictionaries(SOURCES, st.integers(1, 10**9 - 1), max_size=8)
QUERIES = st.builds(
    LogQuery,
    attempt=st.none() | st.integers(1, 10**6),
    sources=st.lists(SOURCES, max_size=4).map(tuple),
    cursors=CURSORS,
    limit_bytes=st.integers(0, LARGEST_ANSWER),
    uid=st.from_regex(r"[0-9a-f-]{0,36}", fullmatch=True),
    as_text=st.booleans(),
)


@given(QUERIES)
def test_a_query_is_what_its_parameters_say(query: LogQuery) -> None:
    assert LogQuery.parse(query.parameters().items()) == query


@given(CURSORS, st.dictionaries(SOURCES, st.text(), max_size=4), st.booleans())
def test_an_answer_is_what_its_json_says(cursors: dict[str, int], parts: dict[str, str], more: bool) -> None:
    answer = LogAnswer("train", 2, tuple(parts), parts, cursors, more)
    assert LogAnswer.from_json(answer.to_json("maps", "support-bot")) == answer


@given(st.text())
def test_a_text_is_a_cursor_or_is_refused(text: str) -> None:
    try:
        found = cursors_of(text)
    except BadInput:
        return
    assert cursors_of(cursor_of(found)) == {source: number for source, number in found.items() if number}
    assert all(".." not in source.split("/") and "/" not in source for source in found)


@pytest.mark.parametrize(
    ("parameters", "cause"),
    [
        ([("atempt", "1")], "there is no parameter 'atempt'"),
        ([("attempt", "0")], "attempt is no whole number from 1"),
        ([("attempt", "１")], "attempt is no whole number"),
        ([("attempt", "1"), ("attempt", "2")], "given twice"),
        ([("source", "../x")], "'../x' is no name of a source"),
        ([("source", "..")], "'..' is no name of a source"),
        ([("source", "rank-0\n")], "is no name of a source"),
        ([("cursor", "rank-0")], "cursor is not a cursor"),
        ([("cursor", "rank-0:1,..:1")], "is no name of a source"),
        ([("cursor", "rank-0:" + "9" * 40)], "cursor is not a cursor"),
        ([("tailLines", "99999999")], "from 1 to 10000"),
        ([("tailLines", "1"), ("cursor", "rank-0:1")], "given together"),
        ([("limitBytes", str(LARGEST_ANSWER + 1))], f"from 0 to {LARGEST_ANSWER}"),
        ([("uid", "a b")], "uid is none"),
        ([("format", "xml")], "neither json nor text"),
    ],
)
def test_what_cannot_be_asked(parameters: list[tuple[str, str]], cause: str) -> None:
    with pytest.raises(BadInput, match=cause):
        LogQuery.parse(parameters)


@pytest.mark.parametrize(
    "found", [{}, {"task": "t", "attempt": "x"}, {"sources": 5}, {"task": "t", "attempt": 1, "sources": [], "parts": [3]}]
)
def test_an_answer_of_another_form_is_none(found: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="no JobSpecLog"):
        LogAnswer.from_json(found)
