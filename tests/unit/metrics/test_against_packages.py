"""Metrics agree with the packages that define them, and add up over parts."""

from __future__ import annotations

import math
import statistics

import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from tuneyard.metrics import METRICS
from tuneyard.metrics.aggregates import mean_interval, ratio_interval, ratio_totals, share_interval
from tuneyard.metrics.bleu import bleu, bleu_totals
from tuneyard.metrics.chrf import chrf, chrf_totals
from tuneyard.metrics.metric import added
from tuneyard.metrics.text import exact_match, json_valid, rouge_l
from tuneyard.scoring.latency import Latencies
from tuneyard.scoring.metrics import Sums
from tuneyard.scoring.rows import ScoredRow

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
    assert exact_match(output, [reference]) == equal


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
    rows = [ScoredRow(0, output=output, references=(reference,)) for output, reference in pairs]

    together = added(bleu_totals(rows[:cut]), bleu_totals(rows[cut:]))

    assert bleu(together) == pytest.approx(sacrebleu.corpus_bleu(outputs, [references]).score)


@settings(max_examples=30)
@given(rows=st.lists(st.tuples(SENTENCES, st.lists(SENTENCES, min_size=1, max_size=3)), min_size=1, max_size=6))
def test_bleu_takes_rows_with_several_references(rows: list[tuple[str, list[str]]]) -> None:
    outputs = [output for output, _ in rows]
    streams = [[found[place] if place < len(found) else None for _, found in rows] for place in range(3)]

    sums = bleu_totals([ScoredRow(0, output=output, references=tuple(found)) for output, found in rows])

    assert bleu(sums) == pytest.approx(sacrebleu.corpus_bleu(outputs, [s for s in streams if any(r is not None for r in s)]).score)


TEXTS = st.one_of(SENTENCES, st.text(max_size=25), st.sampled_from(["", " ", "日本語です", "日本の人", "e\u0301", "\u00e9"]))


@settings(max_examples=60)
@given(rows=st.lists(st.tuples(TEXTS, st.lists(TEXTS, min_size=1, max_size=3)), min_size=1, max_size=6), cut=st.integers(0, 6))
def test_chrf_of_two_parts_is_that_of_sacrebleu_of_the_whole(rows: list[tuple[str, list[str]]], cut: int) -> None:
    streams = [[found[min(place, len(found) - 1)] for _, found in rows] for place in range(3)]
    expected = sacrebleu.corpus_chrf([output for output, _ in rows], streams).score
    scored = [ScoredRow(0, output=output, references=tuple(found)) for output, found in rows]

    assert chrf(added(chrf_totals(scored[:cut]), chrf_totals(scored[cut:]))) == pytest.approx(expected)


@pytest.mark.parametrize("output", ["{}", ' [1, "a"]\n', '"\u65e5"', "-0.5e3", "null", "9" * 5000])
def test_one_json_value_is_valid(output: str) -> None:
    assert json_valid(output) == 1.0


@pytest.mark.parametrize(
    "output", ["", " ", "{} {}", "```json\n{}\n```", "{'a': 1}", "[1,]", "NaN", '{"a": Infinity}', "[" * 100_000, "Sure: {}"]
)
def test_all_else_is_not(output: str) -> None:
    assert json_valid(output) == 0.0


def test_perplexity_is_weighted_by_tokens_not_by_rows() -> None:
    rows = [
        ScoredRow(0, references=("a",), nll=1.0, reference_tokens=1),
        ScoredRow(1, references=("b",), nll=9.0, reference_tokens=9),
        ScoredRow(2, error="too long"),
    ]

    metrics = Sums.of(rows, ["perplexity"]).figures(["perplexity"])

    assert metrics == {"loss": pytest.approx(1.0), "perplexity": pytest.approx(math.e)}


def test_a_metric_that_no_row_has_is_left_out() -> None:
    assert (
        Sums.of([ScoredRow(0, output="x", error=None)], ["exact_match", "bleu", "perplexity"]).figures(
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
    references=st.lists(SENTENCES, max_size=2).map(tuple),
    error=st.one_of(st.none(), st.sampled_from(["empty", "too long"])),
    output_tokens=st.integers(0, 99),
    latency_s=st.one_of(st.none(), st.floats(0.001, 100)),
    nll=st.one_of(st.none(), st.floats(0, 1000)),
    reference_tokens=st.integers(1, 50),
    values=st.one_of(st.just({}), st.sampled_from([0.0, 1.0]).map(lambda value: {"exact_match": value})),
)


@settings(max_examples=30)
@given(rows=st.lists(ROWS, max_size=12), cut=st.integers(0, 12))
def test_sums_of_parts_read_back_from_their_footers_are_the_sums_of_the_whole(rows: list[ScoredRow], cut: int) -> None:
    names = ["exact_match", "bleu", "perplexity"]
    total = Sums()
    for part in (rows[:cut], rows[cut:]):
        total.add(Sums.from_dict(Sums.of(part, names).to_dict()))

    whole = Sums.of(rows, names)

    assert total.figures(names) == pytest.approx(whole.figures(names))
    assert (total.rows, total.errors, total.reasons, total.latencies.counts) == (
        whole.rows,
        whole.errors,
        whole.reasons,
        whole.latencies.counts,
    )


# --- intervals --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("right", "rows", "low", "high"),
    # Newcombe 1998, "Two-sided confidence intervals for the single proportion", table I, method 3.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718), (29, 29, 0.8830, 1.0)],
)
def test_a_share_has_wilsons_interval(right: int, rows: int, low: float, high: float) -> None:
    assert share_interval({"rows": rows, "total": right}) == pytest.approx((low, high), abs=1e-4)


@given(values=st.lists(st.floats(0, 1), min_size=30, max_size=60))
def test_the_interval_of_a_mean_is_two_standard_errors_and_that_of_a_ratio_with_equal_weights_is_the_same(values: list[float]) -> None:
    sums = {"rows": len(values), "total": math.fsum(values), "squares": math.fsum(v * v for v in values)}
    spread = 1.959964 * statistics.stdev(values) / math.sqrt(len(values))
    middle = statistics.fmean(values)

    assert mean_interval(sums) == pytest.approx((middle - spread, middle + spread), abs=1e-6)
    assert ratio_interval(ratio_totals(values, [1.0] * len(values))) == pytest.approx((middle - spread, middle + spread), abs=1e-6)


def test_few_rows_have_no_interval_but_a_share() -> None:
    row = ScoredRow(0, output="4", references=("4",), nll=2.0, reference_tokens=2)
    names = list(METRICS)
    for name in names:
        METRICS[name].measure(row)

    sums = Sums.of([row], names)

    assert list(sums.intervals(names)) == ["exact_match", "numeric", "json_valid"]
    assert sums.figures(names)["perplexity"] == pytest.approx(math.e)
