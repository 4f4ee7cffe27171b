"""All row metrics. To add one, add an entry: `docs/extending/metric.md`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tuneyard.metrics.aggregates import closest, mean, ratio, ratio_interval, ratio_totals
from tuneyard.metrics.chrf import chrf_metric
from tuneyard.metrics.judge import judge_mean
from tuneyard.metrics.metric import Figure, Interval, Metric, Row, Totals
from tuneyard.metrics.similarity import embedding_similarity
from tuneyard.metrics.text import BLEU_SUMS, bleu, bleu_totals, exact_match, json_valid, rouge_l
from tuneyard.metrics.win_rate import win_rate_metric

_MOST_NATS = 700.0
"""The exponential of a larger number overflows a float."""


def _likelihoods(rows: Sequence[Row]) -> Totals:
    counted = [row for row in rows if row.reference_tokens]
    return ratio_totals([row.nll or 0.0 for row in counted], [row.reference_tokens for row in counted])


def _perplexity(loss: float) -> float:
    return math.exp(min(loss, _MOST_NATS))


def _perplexities(sums: Totals) -> Interval | None:
    losses = ratio_interval(sums)
    return (_perplexity(losses[0]), _perplexity(losses[1])) if losses is not None else None


_ENTRIES = (
    mean(
        "exact_match",
        title="exact match",
        description="share of outputs equal to the reference after Unicode NFC; white space counts as one blank, none at the ends; "
        "case and punctuation count",
        per_row=closest(exact_match),
        values="zero or one",
    ),
    mean(
        "rouge_l",
        title="ROUGE-L",
        description="mean F1 of the longest common subsequence of words; "
        "on ASCII the numbers of the `rouge-score` package without stemming",
        per_row=closest(rouge_l),
    ),
    Metric(
        name="bleu",
        description="corpus BLEU of `sacrebleu` (13a, exponential smoothing), 0 to 100",
        needs=frozenset({"output", "reference"}),
        count=bleu_totals,
        figures=(Figure(name="bleu", title="BLEU", description="corpus BLEU, 0 to 100", higher_is_better=True, value=bleu),),
        row_sums=BLEU_SUMS,
    ),
    chrf_metric(),
    embedding_similarity(),
    mean(
        "json_valid",
        title="valid JSON",
        description="share of outputs that are one JSON value (RFC 8259), with nothing around it but white space",
        needs=("output",),
        per_row=lambda row: json_valid(row.output or ""),
        values="zero or one",
    ),
    judge_mean(),
    win_rate_metric(),
    Metric(
        name="perplexity",
        description="exp(`loss`); `loss` is the mean negative log-likelihood of the tokens of the references in nats, given the prompt: "
        "the loss that training reports",
        needs=frozenset({"reference", "likelihood"}),
        count=_likelihoods,
        figures=(
            Figure(
                name="loss",
                title="loss of references",
                description="nats per token",
                higher_is_better=False,
                value=ratio,
                interval=ratio_interval,
            ),
            Figure(
                name="perplexity",
                title="perplexity",
                description="exp(loss)",
                higher_is_better=False,
                value=lambda sums: _perplexity(ratio(sums)),
                interval=_perplexities,
            ),
        ),
    ),
)

METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _ENTRIES}
FIGURES: Mapping[str, Figure] = {figure.name: figure for metric in _ENTRIES for figure in metric.figures}
