"""Results of ranker_ensembles.py: their CSV, and what each model comes to over its seeds."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from benchmarks.ranker_training import PEERS

RESULTS = Path(__file__).parent / "data" / "ranker_ensembles.csv"
SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Result:
    """A row of the CSV. `valid`: normalised entropy of the part that rates are chosen by; the other figures are of the test part.
    `seconds`: of CPU time in training."""

    data: str
    family: str
    layers: int
    seed: int
    rate: float
    parameters: int
    steps: int
    valid: float
    normalised_entropy: float
    auc: float
    calibration: float
    seconds: float


@dataclass(frozen=True)
class Row:
    """One model over its seeds, at the chosen rate."""

    family: str
    layers: int
    results: tuple[Result, ...]

    @property
    def mean(self) -> float:
        return statistics.fmean(result.normalised_entropy for result in self.results)

    @property
    def deviation(self) -> float:
        """Of the seeds; NaN of one."""
        return statistics.stdev(result.normalised_entropy for result in self.results) if len(self.results) > 1 else float("nan")

    @property
    def kind(self) -> str:
        if self.family in PEERS:
            return "peer"
        if self.family == "experts":
            return "mixture"
        return "heterogeneous" if "+" in self.family else "module" if self.layers == 1 else "homogeneous"


def read() -> list[Result]:
    if not RESULTS.exists():
        return []
    kinds = {"data": str, "family": str, "layers": int, "seed": int, "parameters": int, "steps": int}
    with RESULTS.open(encoding="utf-8") as file:
        return [Result(**{name: kinds.get(name, float)(value) for name, value in row.items()}) for row in csv.DictReader(file)]


def append(result: Result) -> None:
    new = not RESULTS.exists()
    with RESULTS.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [each.name for each in fields(Result)], lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(asdict(result))


def rows_of(results: Sequence[Result]) -> list[Row]:
    """The results of each model at its family's rate: of those tried with the first seed, the best on the part to choose by."""
    rows = []
    for family, layers in dict.fromkeys((result.family, result.layers) for result in results):
        own = [result for result in results if (result.family, result.layers) == (family, layers)]
        best = min((result for result in own if result.seed == 0), key=lambda result: result.valid, default=own[0])
        rows.append(Row(family, layers, tuple(result for result in own if result.rate == best.rate)))
    return rows


def spread(rows: Sequence[Row]) -> float:
    """The seeds' standard deviation, pooled over all models."""
    variances = [row.deviation**2 for row in rows if len(row.results) > 1]
    return statistics.fmean(variances) ** 0.5 if variances else float("nan")


def best_module(rows: Sequence[Row]) -> Row:
    """The best of the modules alone."""
    return min((row for row in rows if row.kind == "module"), key=lambda row: row.mean)


def least(rows: Sequence[Row]) -> Row:
    """The row with the lowest normalised entropy."""
    return min(rows, key=lambda row: row.mean)
