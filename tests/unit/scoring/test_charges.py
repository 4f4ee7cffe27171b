"""The charges of attempts at a score task: each token once, whatever ends an attempt."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.scoring.test_score_output import request

from tuneyard.api import ScoreTask
from tuneyard.scoring.charges import CHARGED, Spent, charge, cost_of
from tuneyard.scoring.metrics import Sums
from tuneyard.scoring.request import ScoreRequest
from tuneyard.scoring.rows import Paid
from tuneyard.storage import Store, open_store

MILLION = 1_000_000
EMBEDDED = {"endpoint": {"url": "https://b.example/v1", "model": "vectors", "price": {"input": 10, "output": 0}}}


def asked(folder: Path, *, embeddings: bool = False) -> ScoreRequest:
    """A task at an endpoint, or one with an engine of its own whose texts an endpoint embeds."""
    made = request(folder)
    data = {"source": str(folder / "rows.jsonl"), "reference": "answer"}
    engine = {"endpoint": {"url": "https://a.example/v1", "model": "small", "price": {"input": 1, "output": 2}}}
    if embeddings:
        fields = {"model": {"name": str(folder / "model")}, "data": data, "metrics": ["embedding_similarity"], "embedding": EMBEDDED}
    else:
        fields = {"data": data, "engine": engine}
    return replace(made, task=ScoreTask.model_validate(fields))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "out"))


def part(tokens: int) -> Sums:
    return Sums(paid_input_tokens=tokens * MILLION, paid_output_tokens=tokens * MILLION, embedded_tokens=tokens * MILLION)


def beside(tokens: int) -> Spent:
    return Spent(answers=Paid(tokens * MILLION, 0), embeddings=Paid(tokens * MILLION, 0))


def test_a_part_is_charged_once_and_what_is_in_no_part_beside_it(tmp_path: Path, store: Store) -> None:
    task = asked(tmp_path)
    assert charge(task, store, [], [part(1)], [beside(5)]) == pytest.approx(3 + 5)
    assert charge(task, store, [part(1)], [part(2)], []) == pytest.approx(6)
    assert charge(task, store, [part(1), part(2)], [], []) == 0


def test_embeddings_beside_engines_of_ones_own_are_charged_alone(tmp_path: Path, store: Store) -> None:
    assert charge(asked(tmp_path, embeddings=True), store, [], [part(1)], [beside(1)]) == pytest.approx(20)


@given(attempts=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), max_size=6))
def test_attempts_together_are_charged_for_all_parts_and_all_they_could_tell(
    tmp_path_factory: pytest.TempPathFactory, attempts: list[tuple[int, int, bool]]
) -> None:
    """Each attempt commits some parts, and has tokens in none; one that is killed tells nothing, and its parts fall to the next."""
    folder = tmp_path_factory.mktemp("charges")
    task, store = asked(folder), open_store(str(folder / "out"))
    committed: list[Sums] = []
    told = expected = 0.0
    for parts, tokens, killed in [*attempts, (0, 0, False)]:
        earlier, new = list(committed), [part(1)] * parts
        committed += new
        if not killed:
            told += charge(task, store, earlier, new, [beside(tokens)])
            expected += tokens
    assert told == pytest.approx(expected + cost_of(task, Spent.of(part(len(committed)))))


DAMAGED = [
    b"",
    b"{}",
    b"null",
    b"[" * 100_000,
    b'{"answers": 1, "embeddings": {}}',
    b'{"answers": {"colour": 1}, "embeddings": {}}',
    b'{"answers": {"input_tokens": "7"}, "embeddings": {}}',
    b'{"answers": {"input_tokens": null}, "embeddings": {}}',
    b'{"answers": {"input_tokens": -7}, "embeddings": {}}',
    b'{"answers": {"input_tokens": true}, "embeddings": {}}',
]


@pytest.mark.parametrize("text", DAMAGED, ids=range(len(DAMAGED)))
def test_beside_a_damaged_record_an_attempt_is_charged_for_its_own_parts(tmp_path: Path, store: Store, text: bytes) -> None:
    task = asked(tmp_path)
    store.put(CHARGED, text)
    assert charge(task, store, [part(5)], [part(1)], [beside(2)]) == pytest.approx(3 + 2)
    assert charge(task, store, [part(5), part(1)], [part(2)], []) == pytest.approx(6)
