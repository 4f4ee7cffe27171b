"""Counts over the rows of a table's columns: the mean number of ids, and facts to warn about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch

from tuneyard.ranking.batches import LABELS
from tuneyard.ranking.config import RankerConfig

_NAMES = ("missing", "ids", "outside", "positives", "texts")


@dataclass
class ColumnCounts:
    """By column: rows without a value, ids, ids outside of their table. By label: rows with a 1."""

    missing: dict[str, int]
    ids: dict[str, int]
    outside: dict[str, int]
    positives: list[int]
    rows: int = 0
    texts: Mapping[str, bool] = field(default_factory=dict)
    """Whether the ids of a sparse feature are hashes of texts."""

    @classmethod
    def of(cls, config: RankerConfig, texts: Mapping[str, bool]) -> Self:
        """Counts before the first row."""
        sparse = [feature.name for feature in config.sparse]
        missing = dict.fromkeys([*config.dense, *sparse], 0)
        return cls(missing, dict.fromkeys(sparse, 0), dict.fromkeys(sparse, 0), [0] * len(config.tasks), 0, texts)

    @classmethod
    def from_dict(cls, about: Mapping[str, Any], rows: int) -> Self:
        """Counts from the result of `to_dict`, also after JSON."""
        return cls(**{name: about[name] for name in _NAMES}, rows=rows)

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _NAMES}

    def add(self, batch: Mapping[str, torch.Tensor], config: RankerConfig) -> None:
        """Count rows in a batch of `batch_of`."""
        for at, name in enumerate(config.dense):
            self.missing[name] += int((~torch.isfinite(batch["dense"][:, at])).sum())
        for feature in config.sparse:
            ids, offsets = batch[f"{feature.name}.ids"].numpy(), batch[f"{feature.name}.offsets"].numpy()
            self.missing[feature.name] += int((np.diff(offsets) == 0).sum())
            self.ids[feature.name] += len(ids)
            self.outside[feature.name] += int(((ids < 0) | (ids >= feature.rows)).sum())
        found = batch[LABELS].numpy().sum(0).astype(np.int64).tolist()
        self.positives = [before + here for before, here in zip(self.positives, found, strict=True)]
        self.rows += len(batch[LABELS])

    def merge(self, other: ColumnCounts) -> None:
        """Add the counts of other rows."""
        for mine, theirs in ((self.missing, other.missing), (self.ids, other.ids), (self.outside, other.outside)):
            for name, count in theirs.items():
                mine[name] += count
        self.positives = [before + here for before, here in zip(self.positives, other.positives, strict=True)]
        self.rows += other.rows

    @property
    def ids_per_row(self) -> dict[str, float]:
        """Mean number of ids in a row, by sparse feature."""
        return {name: ids / self.rows for name, ids in self.ids.items()}

    def warnings(self, config: RankerConfig, rows: str = "all rows") -> list[str]:
        """Warnings about the columns, a sentence each. `rows`: description of the counted rows."""
        said = []
        for name, positives in zip(config.tasks, self.positives, strict=True):
            if positives in (0, self.rows):
                said.append(f"label {name} is {int(positives > 0)} in {rows}: there is nothing to learn")
        for name, missing in self.missing.items():
            if missing == self.rows:
                said.append(f"column {name} is missing in {rows}: the ranker learns nothing from it")
        hashed = {name: outside / self.ids[name] for name, outside in self.outside.items() if outside and not self.texts[name]}
        if hashed:
            shares = ", ".join(f"{name} {share:.1%}" for name, share in hashed.items())
            said.append(f"ids outside of their tables are hashed into them: {shares}")
        return said
