"""The order of an engine's requests: the same requests, beginnings together, longer ones first."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tuneyard.scoring.exchange import Asked, Evaluate, Generate
from tuneyard.scoring.order import SHARED_TOKENS, ordered
from tuneyard.scoring.prompts import Likelihood

_BEGINNINGS = st.sampled_from([[], [1] * SHARED_TOKENS, [2] * SHARED_TOKENS])


def _generate(row: int, ids: list[int]) -> Generate:
    return Generate((None, row), ids)


@given(rows=st.lists(st.tuples(_BEGINNINGS, st.integers(1, 300), st.booleans()), max_size=30))
def test_every_request_stays_and_beginnings_and_rows_are_together(rows: list[tuple[list[int], int, bool]]) -> None:
    asked: list[Asked] = []
    for row, (begun, more, evaluated) in enumerate(rows):
        ids = begun + [9] * more
        asked.append(_generate(row, ids))
        if evaluated:
            asked.append(Evaluate((None, row), Likelihood([*ids, 3], [False] * len(ids) + [True])))
    found = ordered(asked)
    assert sorted(map(id, found)) == sorted(map(id, asked))
    order = list(dict.fromkeys(request.key[1] for request in found))
    assert [request.key[1] for request in found] == sorted((request.key[1] for request in found), key=order.index)
    changes = [tuple(rows[row][0][:1]) for row in order if rows[row][0]]
    assert sum(a != b for a, b in itertools.pairwise(changes)) <= max(0, len(set(changes)) - 1)


def test_longer_prompts_come_first() -> None:
    asked = [_generate(row, [row] * length) for row, length in enumerate([5, 200, 40, 130])]
    assert [request.key[1] for request in ordered(asked)] == [1, 3, 2, 0]


def test_the_likelihood_of_a_row_precedes_its_answer() -> None:
    asked = [_generate(0, [1, 2]), Evaluate((None, 0), Likelihood([1, 2, 3], [False, False, True]))]
    assert isinstance(ordered(asked)[0], Evaluate)
