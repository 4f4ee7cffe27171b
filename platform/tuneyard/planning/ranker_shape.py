"""Parameters and activations of a ranker from its description alone: what `tuneyard.ranking` builds, counted (tests compare). Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from tuneyard.api import RankTask

_COMPRESSED, _CROSS_RANK, _CHANNELS, _TAPS, _HEADS = 8, 64, 8, 9, 2
"""As in `tuneyard.ranking.interactions`."""
ADAGRAD_COLUMNS = 16
"""Columns of a row that share one state of row-wise Adagrad."""


@dataclass(frozen=True)
class Count:
    """`parameters` of a part, and the elements that its forward pass keeps for the backward pass for each row."""

    parameters: int
    kept: int

    def __add__(self, other: Count) -> Count:
        return Count(self.parameters + other.parameters, self.kept + other.kept)


@dataclass(frozen=True)
class RankerShape:
    """What memory and speed of a ranker depend on."""

    dense: int
    bags: int
    sequences: tuple[int, ...]
    """Lengths."""
    table_rows: tuple[int, ...]
    width: int
    outputs: int
    layers: tuple[tuple[str, ...], ...]
    hidden: tuple[int, ...]
    labels: int

    @classmethod
    def of(cls, task: RankTask) -> RankerShape:
        sparse, model = task.features.sparse, task.model
        return cls(
            dense=len(task.features.dense),
            bags=sum(not column.length for column in sparse),
            sequences=tuple(column.length for column in sparse if column.length),
            table_rows=tuple(column.rows for column in sparse),
            width=model.width,
            outputs=model.outputs,
            layers=tuple(tuple(layer) for layer in model.layers),
            hidden=tuple(model.hidden),
            labels=len(task.labels),
        )

    @property
    def inputs(self) -> int:
        """Embeddings of a row before the first layer."""
        return self.dense + self.bags + len(self.sequences)

    @property
    def embeddings(self) -> int:
        """Elements of a row's embeddings before each layer, added up."""
        counts = [self.inputs, *(self.outputs * len(modules) for modules in self.layers[:-1])]
        return sum(counts) * self.width

    @property
    def widest(self) -> int:
        """Elements of a row's embeddings where they are most."""
        return max(self.inputs, *(self.outputs * len(modules) for modules in self.layers)) * self.width

    @property
    def has_convolution(self) -> bool:
        return any("convolution" in modules for modules in self.layers)

    @property
    def table_elements(self) -> int:
        return sum(self.table_rows) * self.width

    @property
    def state_elements(self) -> int:
        """Of row-wise Adagrad."""
        return sum(self.table_rows) * -(-self.width // ADAGRAD_COLUMNS)

    @property
    def parts(self) -> list[Count]:
        """Features, each layer, and the network on top."""
        return [self._features, *self._ensembles(), self._head]

    @property
    def total(self) -> Count:
        """Of all but the tables."""
        return sum(self.parts, Count(0, 0))

    @property
    def _features(self) -> Count:
        width = self.width
        dense = Count(3 * self.dense * width, self.dense)
        sequences = (Count(length * width + width + width * width + width, length * (2 * width + 1)) for length in self.sequences)
        return sum(sequences, dense)

    def _ensembles(self) -> Iterator[Count]:
        inputs, width = self.inputs, self.width
        for modules in self.layers:
            outputs = self.outputs * len(modules)
            inner = sum((self._module(name, inputs) for name in modules), Count(0, 0))
            shortcut = Count(0, 0) if outputs == inputs else _mixing(inputs, outputs)
            yield inner + shortcut + Count(2 * width, inputs * width + outputs * width + 2 * outputs)
            inputs = outputs

    def _module(self, name: str, inputs: int) -> Count:
        width, outputs, size = self.width, self.outputs, inputs * self.width
        mixed = _mixing(inputs, outputs)
        if name == "linear":
            return mixed
        if name == "dlrm":
            compressed = min(inputs, _COMPRESSED)
            products, hidden = inputs * compressed, max(width, outputs * width // 2)
            network = Count(products * hidden + hidden + hidden * outputs * width + outputs * width, products + hidden)
            return _mixing(inputs, compressed) + Count(0, compressed * width) + network
        if name == "attention":
            norms = 4 * width
            parameters = 4 * width * width + 4 * width + norms + 4 * width * width + 3 * width
            heads = _HEADS if width % _HEADS == 0 else 1
            return mixed + Count(parameters, 11 * size + (heads + 4) * inputs)
        if name == "convolution":
            return mixed + Count(2 * _CHANNELS * _TAPS + _CHANNELS + 1, (_CHANNELS + 1) * size)
        rank = min(_CROSS_RANK, size)
        return mixed + Count(size * rank + rank * size + size, 2 * size + rank)

    @property
    def _head(self) -> Count:
        inputs = self.outputs * len(self.layers[-1]) * self.width
        sizes = [inputs, *self.hidden, self.labels]
        return Count(sum(a * b + b for a, b in pairwise(sizes)), inputs + sum(self.hidden) + self.labels)


def _mixing(inputs: int, outputs: int) -> Count:
    return Count(inputs * outputs + outputs, 0)
