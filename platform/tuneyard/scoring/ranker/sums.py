"""The sums in the footer of a part: counts, errors, and for each label the sums of all figures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tuneyard.api import RankerScoring
from tuneyard.ranking import Coded, JudgedRows, RankFigures, SlicedMetrics, WindowedMetrics

SHOWN = ("normalised_entropy", "auc", "calibration")
"""Figures of all rows that a report shows; all other figures are in metrics.json only."""
_ERRORS_KEPT = 20


@dataclass(frozen=True)
class EvaluationSettings:
    """Settings of the evaluation of rows. `values`: for each slice column, the values that have separate figures."""

    values: Mapping[str, Sequence[str | None]]
    every: float | None
    """Width of a window; None: no windows."""

    @classmethod
    def of(cls, scoring: RankerScoring, values: Mapping[str, Sequence[str | None]]) -> EvaluationSettings:
        return cls(values, scoring.windows.every if scoring.windows is not None else None)


@dataclass
class LabelSums:
    """Sums of one label."""

    sliced: SlicedMetrics
    windows: WindowedMetrics | None

    @classmethod
    def empty(cls, judging: EvaluationSettings) -> LabelSums:
        most = max([1, *(len(values) for values in judging.values.values())])
        sliced = SlicedMetrics(list(judging.values), most_values=most, values=judging.values)
        return cls(sliced, None if judging.every is None else WindowedMetrics(judging.every))

    def add(self, judged: JudgedRows, columns: Mapping[str, Coded], places: npt.NDArray[Any]) -> None:
        self.sliced.add(judged, columns)
        if self.windows is not None:
            self.windows.add(judged, places)

    def merge(self, other: LabelSums) -> LabelSums:
        windows = self.windows.merge(other.windows) if self.windows is not None and other.windows is not None else None
        return LabelSums(self.sliced.merge(other.sliced), windows)

    def report(self, base_rate: float | None) -> dict[str, Any]:
        """`all`, `slices` and `windows`; empty where no row has the label."""
        if not self.sliced.whole.rows:
            return {}
        found = self.sliced.figures()
        slices = {name: {value: _figures(figures, base_rate) for value, figures in column.items()} for name, column in found.slices.items()}
        made = {"all": _figures(found.whole, base_rate), "slices": slices}
        if self.windows is not None:
            windows = [{"start": each.start, "stop": each.stop, **_figures(each.figures, base_rate)} for each in self.windows.figures()]
            made |= {"windows": windows, "window_width": self.windows.width, "rows_without_window": self.windows.unplaced}
        return made


def _figures(figures: RankFigures, base_rate: float | None) -> dict[str, float]:
    more = {} if base_rate is None else {"entropy_above_base_rate": figures.entropy_above(base_rate)}
    return asdict(figures) | more


@dataclass
class RankedSums:
    """Sums over a set of rows. Rows with an error are left out of figures."""

    rows: int = 0
    errors: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    labels: dict[str, LabelSums] = field(default_factory=dict)

    @classmethod
    def of(cls, errors: Sequence[str | None], labels: dict[str, LabelSums]) -> RankedSums:
        """`errors`: the error of each row, or None."""
        reasons = Counter(error for error in errors if error is not None)
        return cls(len(errors), sum(reasons.values()), reasons, labels)

    def add(self, other: RankedSums) -> None:
        """Add the sums of other rows."""
        self.rows += other.rows
        self.errors += other.errors
        self.reasons = Counter(dict((self.reasons + other.reasons).most_common(_ERRORS_KEPT)))
        for name, sums in other.labels.items():
            self.labels[name] = self.labels[name].merge(sums) if name in self.labels else sums

    def judged(self, base_rate: float | None) -> dict[str, dict[str, Any]]:
        """Label -> `all`, `slices`, `windows`. A label without rows is left out."""
        found = {name: sums.report(base_rate) for name, sums in self.labels.items()}
        return {name: each for name, each in found.items() if each}

    def metrics(self, tasks: Sequence[str]) -> dict[str, float]:
        """Finite figures of all rows: for the ranker's first label by name, for every other label as LABEL.NAME."""
        found = {}
        for label, sums in self.labels.items():
            figures = sums.sliced.whole.figures() if sums.sliced.whole.rows else None
            for name in SHOWN if figures is not None else ():
                value = getattr(figures, name)
                if math.isfinite(value):
                    found[name if label == tasks[0] else f"{label}.{name}"] = float(value)
        return found

    def to_dict(self) -> dict[str, Any]:
        """The sums as JSON values."""
        labels = {
            name: {"sliced": sums.sliced.to_dict(), "windows": None if sums.windows is None else sums.windows.to_dict()}
            for name, sums in self.labels.items()
        }
        reasons = dict(self.reasons.most_common(_ERRORS_KEPT))
        return {"rows": self.rows, "errors": self.errors, "reasons": reasons, "labels": labels}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RankedSums:
        """The inverse of `to_dict`. Raises KeyError for other values."""
        labels = {
            name: LabelSums(
                SlicedMetrics.from_dict(each["sliced"]), None if each["windows"] is None else WindowedMetrics.from_dict(each["windows"])
            )
            for name, each in values["labels"].items()
        }
        return cls(values["rows"], values["errors"], Counter(values["reasons"]), labels)


def places_of(column: Any, first: int, rows: int) -> npt.NDArray[Any]:
    """The place of each row for windows: its number, or its value in an Arrow column; timestamps in seconds since 1970; NaN for null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if column is None:
        return np.arange(first, first + rows)
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        zone = column.type.tz if pa.types.is_timestamp(column.type) else None
        micros = pc.cast(column, pa.timestamp("us", zone), safe=False)
        return numbers_of(pc.cast(micros, pa.int64())) / 1e6
    return numbers_of(column)


def numbers_of(column: Any) -> npt.NDArray[np.float64]:
    """An Arrow column as numbers; NaN for null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found: npt.NDArray[np.float64] = pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return found
