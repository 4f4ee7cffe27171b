"""Parameters, activations and FLOPs of a ranker from its description: counts of the model that `tuneyard.ranking` builds. Pure.

Tests compare the counts with the built model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from tuneyard.api import RankTask

_COMPRESSED, _CROSS_RANK, _CHANNELS, _TAPS, _HEADS, _EXPERTS = 8, 64, 8, 9, 2, 4
"""Constants of `tuneyard.ranking.interactions`."""
_BLOCK = 16
"""Channels of a block of oneDNN's convolutions with AVX-512."""
ADAGRAD_COLUMNS = 16
"""Columns of a row that share one state of row-wise Adagrad."""


@dataclass(frozen=True)
class Count:
    """Counts of a part of the dense model. All but `parameters` are per row of data.

    `kept`: elements that forward keeps for backward. `passing`: the most elements that backward holds beside `kept`, without incoming
    gradients and those of parameters. `flops`: of matrix products, in a forward pass.
    """

    parameters: int = 0
    kept: int = 0
    passing: int = 0
    flops: int = 0
    row_flops: int = 0
    """Part of `flops`: products that each row computes separately, with the weights of mixtures or with each other."""
    attention_flops: int = 0
    convolution_flops: int = 0
    kept_tensor: int = 0
    """Elements of one tensor in `kept`, and in `passing`; 0: as large as the layer's inputs."""
    passing_tensor: int = 0

    @property
    def moved(self) -> int:
        """Elements that are read or written outside the products. A kept element is written, read twice, and has a gradient that is written
        and read; a passing element is written and read by two kernels.
        """
        return 5 * self.kept + 4 * self.passing


@dataclass(frozen=True)
class Moment:
    """Memory of a rank at one moment of backward. `pieces`: elements of a row, and how many of them are one tensor. `gradients`: elements
    of all parameter gradients.
    """

    pieces: tuple[tuple[int, int], ...]
    gradients: int

    @property
    def elements(self) -> int:
        return sum(elements for elements, _ in self.pieces)

    def below(self, limit: float) -> int:
        """Elements in tensors that are smaller than `limit` elements of a row."""
        return sum(elements for elements, tensor in self.pieces if tensor < limit)


@dataclass(frozen=True)
class LayerCount:
    """Counts of an ensemble. `modules` are in their order; `inputs` and `outputs` are elements of a row's embeddings before and after it.

    `norms`: kept means and deviations.
    """

    modules: tuple[Count, ...]
    shortcut: Count
    inputs: int
    outputs: int
    norms: int
    norm_parameters: int

    @property
    def parameters(self) -> int:
        return sum(part.parameters for part in self.modules) + self.shortcut.parameters + self.norm_parameters

    @property
    def norm(self) -> Count:
        """The sum of modules and shortcut, and its norm."""
        return Count(self.norm_parameters, self.inputs + self.outputs + self.norms, 2 * self.outputs)

    @property
    def parts(self) -> tuple[Count, ...]:
        return (*self.modules, self.shortcut, self.norm)

    def moments(self, *, recomputed: bool) -> Iterator[tuple[tuple[int, int], ...]]:
        """Memory of the layer at each moment of its backward pass: kept and passing elements.

        The norm is first, then the shortcut, then the modules from the last to the first: each adds its gradient of the inputs to the sum.
        A recomputed layer has its sum and shortcut beside the incoming gradient.
        """
        ends = (self.inputs + self.outputs, self.inputs)
        inner = [(part.kept, part.kept_tensor or self.inputs) for part in self.modules]
        yield (*inner, ends, ((3 if recomputed else 2) * self.outputs, self.outputs))
        yield (*inner, ends, (self.shortcut.passing, self.inputs))
        for part in reversed(self.modules):
            yield (*inner, ends, (self.inputs, self.inputs), (part.passing, part.passing_tensor or self.inputs))
            inner.pop()

    def kept_pieces(self, *, recompute: bool) -> tuple[tuple[int, int], ...]:
        inner = [] if recompute else [(part.kept, part.kept_tensor or self.inputs) for part in self.modules]
        return (*inner, (self.inputs if recompute else self.norm.kept, self.inputs))


@dataclass(frozen=True)
class RankerShape:
    """Properties of a ranker that determine its memory and speed."""

    dense: int
    bags: int
    sequences: tuple[int, ...]
    """Lengths."""
    table_rows: tuple[int, ...]
    width: int
    outputs: int
    layers: tuple[tuple[str, ...], ...]
    ensemble: str
    hidden: tuple[int, ...]
    labels: int
    rounds_sent: bool
    """Whether embeddings and their gradients are sent in fewer bits."""

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
            ensemble=model.ensemble,
            hidden=tuple(model.hidden),
            labels=len(task.labels),
            rounds_sent=task.tables.exchange != "fp32",
        )

    @property
    def inputs(self) -> int:
        """Embeddings of a row before the first layer."""
        return self.dense + self.bags + len(self.sequences)

    @property
    def table_elements(self) -> int:
        return sum(self.table_rows) * self.width

    @property
    def state_elements(self) -> int:
        """Elements of row-wise Adagrad's states."""
        return sum(self.table_rows) * -(-self.width // ADAGRAD_COLUMNS)

    @property
    def vectors(self) -> int:
        """Embeddings of a row of data: one per bag, and one per place of a sequence."""
        return self.bags + sum(self.sequences)

    @property
    def parameters(self) -> int:
        """Parameters without the tables."""
        return self.features.parameters + sum(layer.parameters for layer in self.ensembles) + self.head.parameters

    @property
    def largest(self) -> int:
        """Parameters of the largest matrix, or an upper bound: the parameters of its part."""
        parts = [part.parameters for layer in self.ensembles for part in (*layer.modules, layer.shortcut)]
        return max(self.features.parameters, self.head.parameters, *parts)

    @property
    def parts(self) -> tuple[Count, ...]:
        return (self.features, *(part for layer in self.ensembles for part in layer.parts), self.head)

    @property
    def features(self) -> Count:
        width = self.width
        dense = Count(3 * self.dense * width, self.dense)
        sequences = [self._sequence(length) for length in self.sequences]
        return Count(
            sum(each.parameters for each in (dense, *sequences)),
            sum(each.kept for each in (dense, *sequences)),
            # The gradients of all embeddings, as received and as sent, and divided by their scales; or those of a sequence.
            max([(2 + self.rounds_sent) * self.vectors * width, *(each.passing for each in sequences)]),
            sum(each.flops for each in sequences),
        )

    def _sequence(self, length: int) -> Count:
        width = self.width
        size = length * width
        return Count(size + width + width * width + width, 2 * size + length, 2 * size, 2 * size * width)

    @cached_property
    def ensembles(self) -> tuple[LayerCount, ...]:
        inputs, width, found = self.inputs, self.width, []
        for modules in self.layers:
            outputs = self._joined(modules)
            found.append(
                LayerCount(
                    modules=tuple(self._part(name, inputs) for name in modules),
                    shortcut=Count(passing=inputs * width) if outputs == inputs else self._mixing(inputs, outputs),
                    inputs=inputs * width,
                    outputs=outputs * width,
                    norms=2 * outputs,
                    norm_parameters=2 * width,
                )
            )
            inputs = outputs
        return tuple(found)

    def _joined(self, modules: tuple[str, ...]) -> int:
        """Embeddings that a layer of these modules gives to the next one."""
        return self.outputs * (len(modules) if self.ensemble == "concatenation" else 1)

    def _part(self, name: str, inputs: int) -> Count:
        """A module in its ensemble. The gradient of its weight in a weighted sum needs its embeddings, and a product of their size."""
        module, made = self._module(name, inputs), self.outputs * self.width
        if self.ensemble != "weighted_sum":
            return module
        return replace(module, parameters=module.parameters + 1, kept=module.kept + made, passing=max(module.passing + made, 2 * made))

    def _mixing(self, inputs: int, outputs: int) -> Count:
        """Backward computes the gradient of the weights for each row, and that of the inputs."""
        weights = inputs * outputs
        flops = 2 * weights * self.width
        return Count(weights + outputs, 0, weights + inputs * self.width, flops, row_flops=flops)

    def _module(self, name: str, inputs: int) -> Count:
        """Passing elements are read off torch's backward, step by step. Tests measure them."""
        width, outputs, size = self.width, self.outputs, inputs * self.width
        mixed = self._mixing(inputs, outputs)
        if name == "linear":
            return mixed
        if name == "dlrm":
            return self._dlrm(inputs)
        if name == "experts":
            return self._experts(inputs)
        if name == "attention":
            norms = 4 * width
            parameters = 4 * width * width + 4 * width + norms + 4 * width * width + 3 * width
            heads = _HEADS if width % _HEADS == 0 else 1
            attention = 4 * inputs * size
            # The network: the gradient of its hidden values before and after the ReLU, where the second norm's input is gone.
            return Count(
                mixed.parameters + parameters,
                11 * size + (heads + 4) * inputs,
                max(mixed.passing, 3 * size),
                mixed.flops + 16 * size * width + attention,
                row_flops=mixed.flops,
                attention_flops=attention,
            )
        if name == "convolution":
            # oneDNN copies channels into blocks: the values and their gradient.
            blocked = 2 * max(_CHANNELS, _BLOCK) * size
            parameters, flops = 2 * _CHANNELS * _TAPS + _CHANNELS + 1, 2 * 2 * _TAPS * _CHANNELS * size
            return Count(
                mixed.parameters + parameters,
                (_CHANNELS + 1) * size,
                max(mixed.passing, blocked),
                mixed.flops + flops,
                row_flops=mixed.flops,
                convolution_flops=flops,
                kept_tensor=_CHANNELS * size,
                passing_tensor=blocked // 2,
            )
        rank = min(_CROSS_RANK, size)
        return Count(
            mixed.parameters + 2 * size * rank + size,
            2 * size + rank,
            max(mixed.passing, 2 * size),
            mixed.flops + 4 * size * rank,
            row_flops=mixed.flops,
        )

    def _dlrm(self, inputs: int) -> Count:
        width, outputs, size = self.width, self.outputs, inputs * self.width
        compressed = min(inputs, _COMPRESSED)
        products, hidden, made = inputs * compressed, max(width, outputs * width // 2), outputs * width
        mixed = self._mixing(inputs, compressed)
        network = products * hidden + hidden * made
        return Count(
            mixed.parameters + network + hidden + made,
            compressed * width + products + hidden,
            made + max(2 * hidden, 2 * size - hidden),
            2 * mixed.flops + 2 * network,
            row_flops=2 * mixed.flops,
        )

    def _experts(self, inputs: int) -> Count:
        """Backward holds the gradients of all experts' embeddings, and sums those of the inputs."""
        expert, size, made = self._dlrm(inputs), inputs * self.width, self.outputs * self.width
        mixed = 2 * _EXPERTS * made
        return Count(
            _EXPERTS * (expert.parameters + size + 1),
            _EXPERTS * (expert.kept + made + 1),
            expert.passing + _EXPERTS * made + size,
            _EXPERTS * (expert.flops + 2 * size) + mixed,
            row_flops=_EXPERTS * expert.row_flops + mixed,
        )

    @property
    def head(self) -> Count:
        inputs = self._joined(self.layers[-1]) * self.width
        sizes = [inputs, *self.hidden, self.labels]
        weights = sum(a * b for a, b in pairwise(sizes))
        return Count(weights + sum(sizes[1:]), inputs + sum(self.hidden) + self.labels, inputs + 2 * max(sizes[1:]), 2 * weights)

    def moments(self, *, recompute: bool) -> Iterator[Moment]:
        """The moments of a backward pass. With `recompute` a layer keeps only its inputs until its backward pass."""
        inputs = self.inputs * self.width
        before: tuple[tuple[int, int], ...] = ((self.features.kept, inputs),)
        yield Moment((*before, (inputs + self.features.passing, inputs)), self.parameters)
        later = self.parameters - self.features.parameters
        for layer in self.ensembles:
            for pieces in layer.moments(recomputed=recompute):
                yield Moment((*before, *pieces), later)
            later -= layer.parameters
            before = (*before, *layer.kept_pieces(recompute=recompute))
        yield Moment((*before, (self.head.kept + self.head.passing, self.head.kept)), self.head.parameters)
