"""chrF (Popović 2015): F-score of character n-grams, as sacrebleu's `CHRF()` computes it: n up to 6, recall counts twice, no blanks.

Unlike ROUGE-L and BLEU it needs no words, so it also serves scripts without blanks between words.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from tuneyard.metrics.metric import Figure, Metric, Row, Totals

_ORDERS = range(1, 7)
_BETA_SQUARED = 4.0
_KINDS = ("output", "reference", "matches")
_SUMS = ("rows", *(f"{kind}_{n}" for kind in _KINDS for n in _ORDERS))
_Ngrams = list[Counter[str]]
"""N-grams of a text with their counts: for n from 1 to 6."""


def chrf_metric() -> Metric:
    """The table's entry."""
    return Metric(
        name="chrf",
        description="corpus chrF of `sacrebleu` (chrF2: character n-grams up to 6), 0 to 100; for any script",
        needs=frozenset({"output", "reference"}),
        count=chrf_totals,
        figures=(Figure(name="chrf", title="chrF", description="corpus chrF2, 0 to 100", higher_is_better=True, value=chrf),),
        row_sums=_SUMS,
    )


def chrf_totals(rows: Sequence[Row]) -> Totals:
    """Counts of character n-grams of outputs, references and both. Of a row's references, the one with the highest chrF counts."""
    totals = Counter({"rows": len(rows)})
    for row in rows:
        output = _ngrams(row.output or "")
        totals.update(max((_compared(output, _ngrams(reference)) for reference in row.references), key=chrf))
    return {name: totals[name] for name in _SUMS}


def chrf(totals: Mapping[str, float]) -> float:
    """chrF, 0..100, from sums of n-gram counts. Orders without an n-gram in output or reference do not count."""
    precisions, recalls = [], []
    for n in _ORDERS:
        output, reference, matches = (totals.get(f"{kind}_{n}", 0) for kind in _KINDS)
        if output > 0 and reference > 0:
            precisions.append(matches / output)
            recalls.append(matches / reference)
    precision, recall = (math.fsum(each) / len(each) if each else 0.0 for each in (precisions, recalls))
    if precision + recall == 0:
        return 0.0
    return 100 * (1 + _BETA_SQUARED) * precision * recall / (_BETA_SQUARED * precision + recall)


def _ngrams(text: str) -> _Ngrams:
    characters = "".join(text.split())
    return [Counter(characters[start : start + n] for start in range(len(characters) - n + 1)) for n in _ORDERS]


def _compared(output: _Ngrams, reference: _Ngrams) -> dict[str, int]:
    """Counts of a row. As in sacrebleu, n-grams of the output do not count where the reference is too short to have any."""
    counts: dict[str, int] = {}
    for n, ours, expected in zip(_ORDERS, output, reference, strict=True):
        matches = sum(min(count, expected[ngram]) for ngram, count in ours.items() if ngram in expected)
        counts |= {f"output_{n}": ours.total() if expected else 0, f"reference_{n}": expected.total(), f"matches_{n}": matches}
    return counts
