"""What becomes of a row's answer, by the code that engines' processes run."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow.parquet as pq
import pytest

from tuneyard.api import ScoreTask
from tuneyard.data import ScoreRow
from tuneyard.data.control_tokens import NONE, Spelled
from tuneyard.metrics import METRICS, Metric
from tuneyard.scoring import Sums, asks_of
from tuneyard.scoring.exchange import Answer, Evaluate
from tuneyard.scoring.open_part import OpenPart
from tuneyard.scoring.paired.row_sums import columns_of, row_sums
from tuneyard.scoring.parts import Columns
from tuneyard.scoring.rows import UNPAID, ScoredRow
from tuneyard.scoring.similarity import Similarities
from tuneyard.scoring.similarity.encoded import Encoded

every_metric = pytest.mark.parametrize("name", METRICS)
REFERENCE = "the 3 cats sat on the mat"
OWN: dict[str, dict[str, Any]] = {
    "embedding_similarity": {"embedding": {"model": "e"}},
    "pass_at_k": {"passAt": {"k": 1}, "generation": {"samples": 2, "temperature": 1}},
    **{name: {"choices": {"texts": ["no", REFERENCE]}} for name in ("acc", "acc_norm", "calibration_error")},
}
"""Fields of the task that a metric needs."""


class Prompts:
    """Tokens of no tokenizer: a part asks, and what it is answered does not depend on them."""

    def prompt(self, _: str, **__: Any) -> list[int]:
        return [1]

    def opens_thoughts(self, prompt: list[int]) -> bool:  # noqa: ARG002 - as the protocol asks
        return False

    def tokens_of(self, prompt: list[int]) -> int:
        return len(prompt)

    def take_spelled(self) -> Spelled:
        return NONE

    chats = False

    def likelihood(self, *_: str, **__: Any) -> Any:
        return SimpleNamespace(ids=[1, 2], counted=[False, True])

    continuation = likelihood


class Embedded:
    """Each text is its own direction."""

    warnings = ()

    paid = UNPAID

    def encode(self, texts: Sequence[str]) -> Encoded:
        return Encoded(np.eye(len(texts)), [False] * len(texts))


def task(*metrics: str) -> ScoreTask:
    judges = {"judge": {"rubric": "r"}, "win_rate": {"rubric": "r", "against": {"source": "d"}}}
    own: dict[str, Any] = {"judge": judges[metrics[0]]} if metrics and metrics[0] in judges else {"metrics": metrics}
    for name in metrics:
        own |= OWN.get(name, {})
    return ScoreTask.model_validate({"model": {"name": "m"}, "data": {"source": "d", "reference": "r"}, **own})


def row(*references: str) -> ScoreRow:
    asked = {"index": 0, "prompt": "p", "system": "", "tools": None, "references": references}
    return cast(ScoreRow, asked | {"answer": REFERENCE, "against": "no", "kept": {}, "error": None})


def scored(asked_row: ScoreRow, *metrics: str, says: str = REFERENCE) -> list[ScoredRow]:
    similarities = Similarities(Embedded()) if "embedding_similarity" in metrics else None
    part = OpenPart([asked_row], task(*metrics), similarities=similarities)
    prompts: Any = Prompts()  # a tokenizer takes seconds to load
    waiting, verdicts = part.requests(prompts), iter(["Verdict: A", "Verdict: B"])
    while waiting:
        asked = waiting.pop(0)
        text = "Score: 4" if metrics == ("judge",) else next(verdicts) if metrics == ("win_rate",) else says
        said: dict[str, Any] = {"nll": 0.5} if isinstance(asked, Evaluate) else {"text": text, "finish_reason": "stop"}
        waiting += part.take(asked.key[1], Answer(asked.key, latency_s=0.1, **said))
    return part.finish()


@every_metric
def test_a_metric_is_computed_kept_and_added_up(name: str) -> None:
    sums = Sums.of(scored(row(REFERENCE), name), [name])
    total = Sums()
    for part in (sums, Sums.from_dict(sums.to_dict())):
        total.add(part)

    assert sums.figures([name])
    assert total.figures([name]) == pytest.approx(sums.figures([name]))


@every_metric
def test_what_it_says_of_a_row_is_a_column(name: str) -> None:
    rows = scored(row(REFERENCE), name)
    written = Columns.infer([row(REFERENCE)], [name]).encode([row(REFERENCE)], rows, Sums.of(rows, [name]))

    read = pq.read_table(io.BytesIO(written))
    values = read.to_pylist()[0]
    assert values.get(name) == rows[0].values.get(name)
    assert (name in values) == (METRICS[name].per_row is not None)
    compared = row_sums(METRICS[name], read.select(columns_of(METRICS[name])))
    sums, whole = dict(zip(compared.names, compared.sums.sum(axis=0).tolist(), strict=True)), Sums.of(rows, [name]).figures([name])
    by_rows = {figure.name: figure.value(sums) for figure in METRICS[name].figures if not figure.of_all_rows}
    assert by_rows == pytest.approx({figure: whole[figure] for figure in by_rows})


def test_the_engine_is_asked_for_what_metrics_need() -> None:
    asked = {
        metrics: asks_of(task(*metrics))
        for metrics in [(), ("judge",), ("perplexity",), ("bleu",), ("bleu", "perplexity"), ("perplexity",) * 2]
    }

    assert {metrics: (a.output, a.likelihood) for metrics, a in asked.items()} == {
        (): (True, False),
        ("judge",): (True, False),
        ("perplexity",): (False, True),
        ("bleu",): (True, False),
        ("bleu", "perplexity"): (True, True),
        ("perplexity", "perplexity"): (False, True),
    }


def test_of_several_references_the_closest_counts() -> None:
    (best,) = scored(row("a dog", REFERENCE, "no"), "exact_match", "rouge_l", "bleu")

    assert best.values == {"exact_match": 1.0, "rouge_l": 1.0}
    assert Sums.of([best], ["bleu"]).figures(["bleu"])["bleu"] == pytest.approx(100.0)


def test_the_likelihood_of_several_references_is_not_asked_for() -> None:
    (bad,) = scored(row("4", "four"), "perplexity")

    assert bad.error == "the row has 2 references, but perplexity needs exactly one"


@pytest.mark.parametrize("value", [math.nan, math.inf, "text", None])
def test_a_metric_that_cannot_be_computed_is_an_error_of_its_row_alone(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cast(dict[str, Metric], METRICS), "exact_match", replace(METRICS["exact_match"], per_row=lambda _: value))

    (bad,) = scored(row(REFERENCE), "exact_match")

    assert str(bad.error).startswith("exact_match cannot be computed: ")
    assert (bad.output, bad.values) == (None, {})
    assert Sums.of([bad], ["exact_match"]).figures(["exact_match"]) == {}


def test_a_task_of_nothing_but_errors_has_no_figures() -> None:
    errors = [ScoredRow(i, error="no prompt") for i in range(3)]
    names = list(METRICS)
    sums = Sums.of(errors, names)

    assert (sums.errors, sums.figures(names), sums.intervals(names)) == (3, {}, {})
