"""All row metrics. To add one, add an entry: `docs/extending/metric.md`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tuneyard.metrics.aggregates import closest, mean, ratio, ratio_interval, ratio_totals
from tuneyard.metrics.bleu import bleu_metric
from tuneyard.metrics.choices import choice_metrics
from tuneyard.metrics.chrf import chrf_metric
from tuneyard.metrics.judge import judge_mean
from tuneyard.metrics.metric import Figure, Interval, Metric, Row, Totals
from tuneyard.metrics.pass_at import pass_at_k
from tuneyard.metrics.similarity import embedding_similarity
from tuneyard.metrics.text import exact_match, json_valid, numeric, rouge_l, token_f1
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
        "case and punctuation count, unless `score.ignore` leaves them out",
        per_row=lambda row: exact_match(row.output or "", row.references, row.ways),
        values="zero or one",
        settings=("ignore",),
    ),
    mean(
        "numeric",
        title="right numbers",
        description="share of outputs whose last number is that of the reference, within `score.numeric`; `1,000`, `1000.0` and `1e3` are "
        "the same number",
        per_row=lambda row: numeric(row.output or "", row.references, row.ways),
        values="zero or one",
        settings=("numeric",),
    ),
    mean(
        "token_f1",
        title="F1 of words",
        description="mean F1 of the words of output and reference, in any order, without case, punctuation and English articles: "
        "the F1 of SQuAD; in scripts without blanks each character is a word",
        per_row=closest(token_f1),
    ),
    mean(
        "rouge_l",
        title="ROUGE-L",
        description="mean F1 of the longest common subsequence of words; on ASCII the numbers of the `rouge-score` package without "
        "stemming; in scripts without blanks each character is a word",
        per_row=closest(rouge_l),
    ),
    bleu_metric(),
    chrf_metric(),
    embedding_similarity(),
    mean(
        "json_valid",
        title="valid JSON",
        description="share of outputs that are one JSON value (RFC 8259), with nothing around it but white space",
        needs=("output",),
        per_row=lambda row: json_valid(row.output or ""),
        values="zero or one",
        of_whole_output=True,
    ),
    pass_at_k(),
    *choice_metrics(),
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
