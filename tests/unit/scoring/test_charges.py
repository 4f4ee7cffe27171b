"""The charges of attempts at a score task: each token once, whatever ends an attempt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.scoring.scored_by_hand import request as by_hand
from tests.unit.scoring.scored_by_hand import write_rows
from tests.unit.scoring.test_score_output import request

from tuneyard.api import ScoreTask, StorageError
from tuneyard.scoring import prepare, worker
from tuneyard.scoring.charges import CHARGED, Spent, charge, cost_of
from tuneyard.scoring.endpoint.prompts import EndpointPrompts
from tuneyard.scoring.exchange import Answer
from tuneyard.scoring.metrics import Sums
from tuneyard.scoring.parts import commit
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


def test_a_part_that_somebody_has_removed_makes_no_later_token_free(tmp_path: Path, store: Store) -> None:
    task = asked(tmp_path)
    charge(task, store, [], [part(2)], [])
    assert charge(task, store, [part(1)], [], [beside(3)]) == pytest.approx(3)


class _Answers:
    """An engine that answers each request, and charges three tokens for it."""

    in_flight = 0

    def run(self, requests: Iterator[Any]) -> Iterator[Answer]:
        for each in requests:
            if each is not None:
                yield Answer(each.key, 0.1, "yes", "stop", 1, paid=Paid(2, 1))

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("arrives", "in_parts"), [(False, Paid()), (True, Paid(4, 2))], ids=["lost", "arrived"])
def test_tokens_of_a_part_whose_commit_fails_are_told_as_those_of_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arrives: bool, in_parts: Paid
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [{"prompt": "?"}, {"prompt": "!"}])
    job = prepare(by_hand(tmp_path, "judge", rows, source={"source": str(rows)}, metrics=[]))

    def fail(store: Store, number: int, content: bytes) -> bool:
        if arrives:
            commit(store, number, content)
        raise StorageError("the disk is full", "free some space")

    monkeypatch.setattr(worker, "commit", fail)
    one = worker.PartWorker(job.order)
    one._begin(_Answers(), EndpointPrompts(chat=None))
    with pytest.raises(StorageError, match="the disk is full"):
        one.score(0)
    assert one.close() == Spent().minus(Spent(in_parts)), "less what is in parts, of all that this class knows of: nothing"
