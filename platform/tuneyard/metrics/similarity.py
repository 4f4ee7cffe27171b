"""Embedding similarity: the cosine of sentence embeddings of output and reference (Reimers and Gurevych 2019, Sentence-BERT).

The worker computes it for many rows at once (`scoring.similarity`); this entry adds it up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tuneyard.metrics.aggregates import mean
from tuneyard.metrics.metric import Metric, Row, Totals

EMBEDDING_SIMILARITY = "embedding_similarity"


@dataclass(frozen=True, slots=True)
class Similarity:
    """The cosine of an output and its closest reference, -1 to 1. `cut`: one of the texts was longer than the embedding model takes."""

    cosine: float
    cut: bool = False


def embedding_similarity() -> Metric:
    """Needs `score.embedding`. Its sums count the rows with a cut text as `cut`."""
    metric = mean(
        EMBEDDING_SIMILARITY,
        title="embedding similarity",
        description="mean cosine of the sentence embeddings of output and reference, -1 to 1, by the model `score.embedding`",
        needs=("output", "reference", "similarity"),
        per_row=lambda row: _of(row).cosine,
        settings=("embedding",),
    )

    def count(rows: Sequence[Row]) -> Totals:
        return metric.count(rows) | {"cut": sum(_of(row).cut for row in rows)}

    return replace(metric, count=count)


def _of(row: Row) -> Similarity:
    assert row.similarity is not None
    return row.similarity
