"""A seeded log of clicks with known causes: effects of single features, of pairs, of triples, and of the order of earlier items.

It serves to test rankers where real logs are not available. Every id has hidden vectors, which follow from the seed. The logit of a click
is

    bias + first + second + third + sequence + noise

Over the rows of a sample, each effect has the standard deviation in `Effects`. So the best possible normalised entropy is known: that of
the true probabilities.
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
_HIDDEN = 2
"""Size of a hidden vector. With more, or with larger tables, no ranker finds pairs and triples in the rows that a core reads in a
minute.
"""
_HISTORY = 12
_TAGS = 5
_DENSE = 4
_EFFECTS = 4
_SAMPLE = 20_000
"""Rows over which the standard deviation of each effect is computed."""
TABLES = {"user": 100, "item": 50, "category": 20, "hour": 24, "device": 6, "tags": 20, "history": 50}
"""Ids of each feature. Few ids, so that each is frequent in a log of about 100,000 rows."""


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
    """A ranker config for the log. `fields`: fields of RankerConfig, such as `layers`."""
    sparse = tuple(SparseFeature(name, rows, length=_HISTORY if name == "history" else 0) for name, rows in TABLES.items())
    return RankerConfig(**{"dense": tuple(f"number{at}" for at in range(_DENSE)), "sparse": sparse, "tasks": ("clicked",), **fields})


def generated_clicks(
    rows: int, seed: int, *, effects: Effects | None = None, batch: int = 20_000, first_row: int = 0
) -> Iterator[pa.RecordBatch]:
    """Batches of `batch` rows: the features of `config_of`, `clicked`, and the true `probability`.

    For a fixed size of batches, a row depends only on `seed` and its number: `first_row` (a multiple of `batch`) continues the same log.
    """
    causes = _Causes(seed, effects or Effects())
    for start in range(first_row, first_row + rows, batch):
        yield causes.rows(min(batch, first_row + rows - start), np.random.default_rng([seed, start]))


@dataclass(frozen=True)
class _Rows:
    """Random draws of the rows: an id of each feature; `tags` and `history` [rows, most], padded with -1; `dense` [rows, numbers]."""

    ids: dict[str, Ids]
    tags: Ids
    history: Ids
    dense: Numbers


class _Causes:
    """Hidden vectors of all ids."""

    def __init__(self, seed: int, effects: Effects) -> None:
        random = np.random.default_rng(seed)
        self._effects = effects
        self._alone = {name: random.normal(size=size) for name, size in TABLES.items()}
        self._vectors = {name: random.normal(size=(size, _HIDDEN)) for name, size in TABLES.items()}
        self._numbers = random.normal(size=_DENSE)
        self._shares = {name: _popularity(size, random) for name, size in TABLES.items()}
        self._spreads = np.ones(_EFFECTS)
        self._spreads = self._effects_of(self._draw(_SAMPLE, random)).std(1)

    def rows(self, count: int, random: np.random.Generator) -> pa.RecordBatch:
        drawn, effects = self._draw(count, random), self._effects
        sizes = np.array([effects.first, effects.second, effects.third, effects.sequence])
        logit = effects.bias + sizes @ self._effects_of(drawn) + effects.noise * random.normal(size=count)
        probability = 1 / (1 + np.exp(-logit))
        columns: dict[str, Any] = {name: pa.array(values) for name, values in drawn.ids.items()}
        columns["tags"] = _lists_of(drawn.tags)
        columns["history"] = _lists_of(drawn.history[:, ::-1])  # the latest last
        columns |= {f"number{at}": pa.array(drawn.dense[:, at]) for at in range(_DENSE)}
        columns["clicked"] = pa.array((random.random(count) < probability).astype(np.int8))
        columns["probability"] = pa.array(probability)
        return pa.RecordBatch.from_pydict(columns)

    def _draw(self, count: int, random: np.random.Generator) -> _Rows:
        ids = {name: random.choice(TABLES[name], count, p=self._shares[name]) for name in ("user", "item", "category", "hour", "device")}
        tags, history = self._lists("tags", _TAGS, count, random), self._lists("history", _HISTORY, count, random)
        return _Rows(ids, tags, history, np.exp(random.normal(size=(count, _DENSE))))

    def _lists(self, name: str, most: int, count: int, random: np.random.Generator) -> Ids:
        """Ids [rows, most]. Each row is filled from the left to a random length, and padded with -1."""
        ids = random.choice(TABLES[name], (count, most), p=self._shares[name])
        return np.where(np.arange(most) < random.integers(0, most + 1, (count, 1)), ids, -1)

    def _effects_of(self, rows: _Rows) -> Numbers:
        """[effects, rows], each effect divided by its standard deviation."""
        vectors = {name: self._vectors[name][each] for name, each in rows.ids.items()}
        alone = sum(self._alone[name][each] for name, each in rows.ids.items()) + np.log(rows.dense) @ self._numbers
        tag = _mean(self._vectors["tags"], rows.tags)
        user, item, category, hour, device = (vectors[name] for name in ("user", "item", "category", "hour", "device"))
        pairs = np.sum(user * item + category * device + tag * category, 1)
        triples = np.sum(user * category * hour + tag * item * device, 1)
        nearer = _mean(self._vectors["history"], rows.history, np.exp(-np.arange(_HISTORY) / 2.0))  # the last ones count most
        order = np.sum(nearer * item, 1)
        found: Numbers = np.stack([alone, pairs, triples, order]) / self._spreads[:, None]
        return found


def _popularity(size: int, random: np.random.Generator) -> Numbers:
    """Zipf's law over the ids in random order."""
    shares: Numbers = 1 / np.arange(1, size + 1) ** 0.8
    random.shuffle(shares)
    shares /= shares.sum()
    return shares


def _mean(vectors: Numbers, ids: Ids, weights: Numbers | None = None) -> Numbers:
    """Weighted mean of the vectors of each row's ids; zeros for a row without ids."""
    there = (ids >= 0) * (np.ones(ids.shape[1]) if weights is None else weights)
    total: Numbers = np.einsum("rl,rlh->rh", there, vectors[np.maximum(ids, 0)])
    total /= np.maximum(there.sum(1, keepdims=True), 1e-9)
    return total


def _lists_of(ids: Ids) -> pa.Array:
    """Arrow's lists of the ids, without -1."""
    offsets = np.zeros(len(ids) + 1, dtype=np.int32)
    np.cumsum((ids >= 0).sum(1), out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(ids[ids >= 0]))
