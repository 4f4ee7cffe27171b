"""Metrics agree with the packages that define them, and add up over parts."""

from __future__ import annotations

import math

import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from tuneyard.scoring.latency import Latencies
from tuneyard.scoring.metrics import Sums
from tuneyard.scoring.rows import ScoredRow
from tuneyard.scoring.text_metrics import BleuCounts, exact_match, rouge_l

SENTENCES = st.lists(st.sampled_from(["the", "cat", "sat,", "on", "A", "mat.", "dog's", "2"]), max_size=12).map(" ".join)


@pytest.mark.parametrize(
    ("output", "reference", "equal"),
    [
        ("42", "42", 1.0),
        ("  42\n", "42", 1.0),
        ("a  b", "a b", 1.0),
        ("caf\u00e9", "cafe\u0301", 1.0),
        ("Paris", "paris", 0.0),
        ("Paris.", "Paris", 0.0),
        ("", "", 1.0),
    ],
)
def test_exact_match_ignores_white_space_and_nothing_else(output: str, reference: str, equal: float) -> None:
    assert exact_match(output, reference) == equal


@given(output=SENTENCES, reference=SENTENCES)
def test_rouge_l_is_that_of_the_rouge_score_package(output: str, reference: str) -> None:
    expected = RougeScorer(["rougeL"]).score(reference, output)["rougeL"].fmeasure

    assert rouge_l(output, reference) == pytest.approx(expected)


def test_rouge_l_knows_other_scripts() -> None:
    assert rouge_l("кошка сидит", "кошка спит") == pytest.approx(0.5)


@settings(max_examples=30)
@given(pairs=st.lists(st.tuples(SENTENCES, SENTENCES), min_size=1, max_size=8), cut=st.integers(0, 8))
def test_bleu_of_two_parts_is_corpus_bleu_of_the_whole(pairs: list[tuple[str, str]], cut: int) -> None:
    outputs, references = [o for o, _ in pairs], [r for _, r in pairs]

    together = BleuCounts.of(outputs[:cut], references[:cut]) + BleuCounts.of(outputs[cut:], references[cut:])

    assert together.score() == pytest.approx(sacrebleu.corpus_bleu(outputs, [references]).score)


def test_perplexity_is_weighted_by_tokens_not_by_rows() -> None:
    rows = [ScoredRow(0, nll=1.0, reference_tokens=1), ScoredRow(1, nll=9.0, reference_tokens=9), ScoredRow(2, error="too long")]

    metrics = Sums.of(rows, ["perplexity"]).metrics(["perplexity"])

    assert metrics == {"loss": pytest.approx(1.0), "perplexity": pytest.approx(math.e)}


def test_a_metric_that_no_row_has_is_left_out() -> None:
    assert (
        Sums.of([ScoredRow(0, output="x", error=None)], ["exact_match", "bleu", "perplexity"]).metrics(
            ["exact_match", "bleu", "perplexity"]
        )
        == {}
    )


@given(seconds=st.lists(st.floats(1e-4, 1e4), min_size=1, max_size=200), share=st.sampled_from([0.0, 0.5, 0.9, 0.99, 1.0]))
def test_percentiles_are_right_to_one_percent(seconds: list[float], share: float) -> None:
    latencies = Latencies()
    for value in seconds:
        latencies.add(value)

    exact = sorted(seconds)[math.floor(share * (len(seconds) - 1))]

    assert latencies.percentile(share) == pytest.approx(exact, rel=0.0101)


ROWS = st.builds(
    ScoredRow,
    row=st.integers(0, 99),
    output=st.one_of(st.none(), SENTENCES),
    reference=st.one_of(st.none(), SENTENCES),
    error=st.one_of(st.none(), st.sampled_from(["empty", "too long"])),
    output_tokens=st.integers(0, 99),
    latency_s=st.one_of(st.none(), st.floats(0.001, 100)),
    nll=st.one_of(st.none(), st.floats(0, 1000)),
    reference_tokens=st.integers(1, 50),
    exact_match=st.one_of(st.none(), st.sampled_from([0.0, 1.0])),
)


@settings(max_examples=30)
@given(rows=st.lists(ROWS, max_size=12), cut=st.integers(0, 12))
def test_sums_of_parts_read_back_from_their_footers_are_the_sums_of_the_whole(rows: list[ScoredRow], cut: int) -> None:
    names = ["exact_match", "bleu", "perplexity"]
    total = Sums()
    for part in (rows[:cut], rows[cut:]):
        total.add(Sums.from_dict(Sums.of(part, names).to_dict()))  # type: ignore[arg-type]  # names of metrics

    whole = Sums.of(rows, names)  # type: ignore[arg-type]  # names of metrics

    assert total.metrics(names) == pytest.approx(whole.metrics(names))  # type: ignore[arg-type]  # names of metrics
    assert (total.rows, total.errors, total.reasons, total.latencies.counts) == (
        whole.rows,
        whole.errors,
        whole.reasons,
        whole.latencies.counts,
    )
