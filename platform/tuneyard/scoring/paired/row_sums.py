"""Sums and values of single rows, from the columns of a part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuneyard.metrics import Metric

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class RowSums:
    """`sums` (rows x names): the sums of `Metric.count` that figures need, for each row alone; 0 for rows without the metric. `values`: by
    which two answers to a row are compared; NaN for rows without the metric."""

    names: tuple[str, ...]
    sums: Numbers
    values: Numbers

    @property
    def known(self) -> NDArray[np.bool_]:
        """The rows that have the metric."""
        return np.isfinite(self.values)


def columns_of(metric: Metric) -> list[str]:
    """The columns that `row_sums` reads."""
    if metric.per_row is not None:
        return [metric.name]
    return ["nll", "reference_tokens"] if metric.sums_column is None else [metric.sums_column]


def row_sums(metric: Metric, table: Any) -> RowSums:
    """The sums and the value of each row of a part. `table`: a pyarrow.Table with `columns_of(metric)`."""
    if metric.per_row is not None:
        return _of_values(_numbers(table[metric.name]))
    if metric.sums_column is None:
        return _of_likelihoods(_numbers(table["nll"]), _numbers(table["reference_tokens"]))
    return _of_sums(metric, table[metric.sums_column].combine_chunks())


def _of_values(values: Numbers) -> RowSums:
    known = np.isfinite(values)
    return RowSums(("rows", "total"), np.column_stack([known, np.where(known, values, 0.0)]), np.where(known, values, np.nan))


def _of_likelihoods(nll: Numbers, tokens: Numbers) -> RowSums:
    known = np.isfinite(nll) & (tokens > 0)
    sums = np.column_stack([known, np.where(known, nll, 0.0), np.where(known, tokens, 0.0)])
    return RowSums(("rows", "above", "below"), sums, np.where(known, nll / np.where(known, tokens, 1.0), np.nan))


def _of_sums(metric: Metric, column: Any) -> RowSums:
    names = tuple(column.type.field(index).name for index in range(column.type.num_fields))
    known = column.is_valid().to_numpy(zero_copy_only=False)
    sums = np.column_stack([np.nan_to_num(_numbers(each)) for each in column.flatten()])
    sums[~known] = 0.0
    figure = metric.figures[0].value
    values = (figure(dict(zip(names, row, strict=True))) if has else np.nan for row, has in zip(sums.tolist(), known, strict=True))
    return RowSums(names, sums, np.fromiter(_floats(values), np.float64, len(known)))


def _floats(values: Iterator[float]) -> Iterator[float]:
    return (float(value) for value in values)


def _numbers(column: Any) -> Numbers:
    """A column as floats; NaN for null."""
    import pyarrow as pa

    cast = column.cast(pa.float64()).combine_chunks() if isinstance(column, pa.ChunkedArray) else column.cast(pa.float64())
    found: Numbers = cast.to_numpy(zero_copy_only=False)
    return found
