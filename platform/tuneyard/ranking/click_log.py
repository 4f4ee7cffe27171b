"""A seeded log of clicks with known causes: effects of single features, of pairs, of triples, and of the order of what was seen before.

For trying rankers where no log may be used. Every id has hidden vectors, which follow from the seed; the logit of a click is

    bias + first + second + third + sequence + noise

with the variances of `Effects`. So the best possible normalised entropy is known: that of the true probabilities.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tuneyard.ranking.config import RankerConfig, SparseFeature

Numbers = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]
_HIDDEN = 4
_HISTORY = 12
_TAGS = 5
_DENSE = 4
TABLES = {"user": 1_000, "item": 500, "category": 20, "hour": 24, "device": 6, "tags": 50, "history": 500}
"""Ids of each feature."""


@dataclass(frozen=True)
class Effects:
    """Standard deviations of each kind of effect in the logit."""

    first: float = 1.0
    second: float = 1.0
    third: float = 0.8
    sequence: float = 0.8
    noise: float = 0.3
    bias: float = -1.6


def config_of(**fields: Any) -> RankerConfig:
    """A ranker for the log; `fields` of RankerConfig, `layers` among them."""
    sparse = tuple(SparseFeature(name, rows, length=_HISTORY if name == "history" else 0) for name, rows in TABLES.items())
    return RankerConfig(**{"dense": tuple(f"number{at}" for at in range(_DENSE)), "sparse": sparse, "tasks": ("clicked",), **fields})


def generated_clicks(
    rows: int, seed: int, *, effects: Effects | None = None, batch: int = 20_000, first_row: int = 0
) -> Iterator[pa.RecordBatch]:
    """Batches of `batch` rows: the features of `config_of`, `clicked`, and the true `probability`.

    A row depends on `seed` and its number alone, batches of one size given: `first_row` (a multiple of `batch`) goes on with the same log.
    """
    causes = _Causes(seed, effects or Effects())
    for start in range(first_row, first_row + rows, batch):
        yield causes.rows(min(batch, first_row + rows - start), np.random.default_rng([seed, start]))


class _Causes:
    """Hidden vectors of all ids."""

    def __init__(self, seed: int, effects: Effects) -> None:
        random = np.random.default_rng(seed)
        self._effects = effects
        self._alone = {name: random.normal(size=size) for name, size in TABLES.items()}
        self._vectors = {name: random.normal(size=(size, _HIDDEN)) for name, size in TABLES.items()}
        self._numbers = random.normal(size=_DENSE)
        self._shares = {name: _popularity(size, random) for name, size in TABLES.items()}

    def rows(self, count: int, random: np.random.Generator) -> pa.RecordBatch:
        ids = {name: random.choice(TABLES[name], count, p=self._shares[name]) for name in ("user", "item", "category", "hour", "device")}
        tags, tag_lengths = self._lists("tags", _TAGS, count, random)
        history, history_lengths = self._lists("history", _HISTORY, count, random)
        dense = np.exp(random.normal(size=(count, _DENSE)))
        logit = self._logit(ids, tags, history, dense) + self._effects.noise * random.normal(size=count)
        probability = 1 / (1 + np.exp(-logit))
        columns: dict[str, Any] = {name: pa.array(values) for name, values in ids.items()}
        columns["tags"] = _lists_of(tags, tag_lengths)
        columns["history"] = _lists_of(history[:, ::-1], history_lengths)  # the latest last
        columns |= {f"number{at}": pa.array(dense[:, at]) for at in range(_DENSE)}
        columns["clicked"] = pa.array((random.random(count) < probability).astype(np.int8))
        columns["probability"] = pa.array(probability)
        return pa.RecordBatch.from_pydict(columns)

    def _lists(self, name: str, most: int, count: int, random: np.random.Generator) -> tuple[Ids, Ids]:
        """Ids [rows, most], of which the first `length` of each row are there; the others are -1."""
        ids = random.choice(TABLES[name], (count, most), p=self._shares[name])
        lengths = random.integers(0, most + 1, count)
        return np.where(np.arange(most) < lengths[:, None], ids, -1), lengths

    def _logit(self, ids: dict[str, Ids], tags: Ids, history: Ids, dense: Numbers) -> Numbers:
        effects, vectors = self._effects, {name: self._vectors[name][each] for name, each in ids.items()}
        alone = sum(self._alone[name][each] for name, each in ids.items()) + np.log(dense) @ self._numbers
        tag = _mean(self._vectors["tags"], tags)
        user, item, category, hour, device = (vectors[name] for name in ("user", "item", "category", "hour", "device"))
        pairs = np.sum(user * item + category * device + tag * category, 1)
        triples = np.sum(user * category * hour + tag * item * device, 1)
        nearer = _mean(self._vectors["history"], history, np.exp(-np.arange(_HISTORY) / 2.0))  # the last ones count most
        order = np.sum(nearer * item, 1)
        parts = ((effects.first, alone), (effects.second, pairs), (effects.third, triples), (effects.sequence, order))
        logit: Numbers = effects.bias + sum(size * part / _SPREADS[at] for at, (size, part) in enumerate(parts))
        return logit


_SPREADS = (3.0, 2.9, 2.4, 1.3)
"""About the standard deviations of the raw effects, so that `Effects` has those of the logit."""


def _popularity(size: int, random: np.random.Generator) -> Numbers:
    """Zipf's law over ids in random order."""
    shares: Numbers = 1 / np.arange(1, size + 1) ** 0.8
    random.shuffle(shares)
    shares /= shares.sum()
    return shares


def _mean(vectors: Numbers, ids: Ids, weights: Numbers | None = None) -> Numbers:
    """Weighted mean of the vectors of each row's ids; zeros where it has none."""
    there = (ids >= 0) * (np.ones(ids.shape[1]) if weights is None else weights)
    total: Numbers = np.einsum("rl,rlh->rh", there, vectors[np.maximum(ids, 0)])
    total /= np.maximum(there.sum(1, keepdims=True), 1e-9)
    return total


def _lists_of(ids: Ids, lengths: Ids) -> pa.Array:
    """Arrow's lists of the ids that are there."""
    offsets = np.zeros(len(ids) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(ids[ids >= 0]))
