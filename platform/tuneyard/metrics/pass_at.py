"""pass@k: the probability that at least one of k samples of a row is right (Chen et al. 2021, "Evaluating Large Language Models Trained on
Code", equation 1)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from tuneyard.metrics.aggregates import mean
from tuneyard.metrics.metric import Metric, Row
from tuneyard.metrics.text import exact_match, numeric
from tuneyard.metrics.ways import Ways

RIGHT: Mapping[str, Callable[[str, Sequence[str], Ways], float]] = {"exact_match": exact_match, "numeric": numeric}
"""Metrics by which a sample is right or wrong, from the sample, the references, and the task's ways."""


def pass_at_k() -> Metric:
    """Needs `score.passAt`."""
    return mean(
        "pass_at_k",
        title="pass@k",
        description="mean probability that at least one of `passAt.k` samples is right, by the unbiased estimator 1 - C(n-c, k) / C(n, k) "
        "of n samples with c right ones (Chen et al. 2021)",
        needs=("samples", "reference"),
        per_row=_of_row,
        settings=("passAt", "ignore", "numeric"),
    )


def _of_row(row: Row) -> float:
    right = RIGHT[row.ways.right]
    count = sum(sample is not None and right(sample, row.references, row.ways) == 1.0 for sample in row.samples)
    return pass_at(len(row.samples), count, row.ways.k)


def pass_at(samples: int, right: int, k: int) -> float:
    """The unbiased estimate from `samples` of which `right` are right. Raises ValueError for k above `samples`."""
    if k > samples:
        raise ValueError(f"pass@{k} needs {k} samples, and the row has {samples}")
    return 1.0 - math.comb(samples - right, k) / math.comb(samples, k)
