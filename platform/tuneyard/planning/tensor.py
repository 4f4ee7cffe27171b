"""Tensor parallelism in a plan, as training does it: shares of the model per rank, exchanges between ranks, and degrees to choose from.

`parallel.tensor_parallel_plan` decides on the model itself, by proof; it needs torch. This module reads the same rules off the shape: pairs
of columns and rows in attention and feed-forward, large matrices and the vocabulary cut alone, everything else whole. A test compares the
two for every family of the catalog. Other engines (Megatron-LM, nanotron) divide everything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from tuneyard.api import BadInput, TrainTask
from tuneyard.catalog import Gpu, ModelShape, adapted_projections
from tuneyard.catalog.shapes import Projection
from tuneyard.planning.setup import Setup

Cut = Literal["columns", "rows", "gathered columns", "split rows", "whole"]
"""Paired columns and rows. A matrix cut alone: columns whose result is gathered, or rows whose input is split. Whole: on every rank."""
_SHARED_LATENT = "kv_a_proj_with_mqa"
"""Whole in latent attention: all heads share its position part."""
_DEGREES = (2, 4, 8)


@dataclass(frozen=True)
class Messages:
    """Elements per token that one rank adds up (all-reduce) and gathers in all layers, and the number of collectives, in one pass."""

    summed: int = 0
    gathered: int = 0
    collectives: int = 0

    def __add__(self, other: Messages) -> Messages:
        return Messages(self.summed + other.summed, self.gathered + other.gathered, self.collectives + other.collectives)

    def times(self, layers: int) -> Messages:
        return Messages(self.summed * layers, self.gathered * layers, self.collectives * layers)


@lru_cache(maxsize=4096)
def cuts(shape: ModelShape, degree: int) -> Mapping[str, Cut]:
    """The cut of each projection on `degree` ranks, by `key`."""
    return {key(p): _cut(shape, p, degree) for p in shape.projections}


def key(p: Projection) -> str:
    """Identifier of a projection. Names are not unique: attention and experts of one family may have an output of the same name."""
    return f"{p.stage} {p.name} {p.inputs}x{p.outputs}"


def heads_divide(shape: ModelShape, degree: int) -> bool:
    """Whether every rank gets the same number of whole query and key heads, so that attention is paired. One rank has all of them."""
    return degree == 1 or (shape.heads % degree == 0 and shape.kv_heads % degree == 0)


@lru_cache(maxsize=4096)
def rank_parameters(shape: ModelShape, degree: int) -> float:
    """Parameters of a rank: of the fullest, where the vocabulary is cut into unequal shares."""
    if degree == 1:
        return float(shape.parameters)
    found = cuts(shape, degree)
    kept = sum(p.parameters / (1 if found[key(p)] == "whole" else degree) for p in shape.projections[:-1])
    tables = 1 if shape.tied else 2
    rows = -(-shape.vocab // degree) if _vocabulary_divides(shape, degree) else shape.vocab
    vocabulary = shape.embedding_parameters * rows / shape.vocab
    head = shape.head.parameters / (1 if found[key(shape.head)] == "whole" else degree)
    return shape.other_parameters + kept + vocabulary + (head if tables == 2 else 0.0)


def logits_are_cut(shape: ModelShape, degree: int) -> bool:
    """Whether a rank computes only the logits of its share of the vocabulary."""
    return cuts(shape, degree)[key(shape.head)] == "gathered columns"


def rank_adapter_parameters(setup: Setup) -> float:
    """Parameters of an adapter per rank. For a matrix cut into columns B is cut, for rows A; the other factor is whole."""
    adapter, degree = setup.method.adapter, setup.layout.tensor_parallel
    assert adapter is not None
    found = cuts(setup.shape, degree)
    total = 0.0
    for p in adapted_projections(setup.shape, adapter):
        how = found[key(p)]
        inputs = p.inputs / (degree if how in ("rows", "split rows") else 1)
        outputs = p.outputs / (degree if how in ("columns", "gathered columns") else 1)
        total += p.layers * p.copies * adapter.rank * p.rank_factor * (inputs + outputs)
    return total


def cuts_something(shape: ModelShape, degree: int) -> bool:
    """Whether a degree leaves each rank less than the whole model."""
    return rank_parameters(shape, degree) < shape.parameters


@lru_cache(maxsize=4096)
def messages(shape: ModelShape, degree: int, *, sequence_parallel: bool = False) -> tuple[Messages, Messages]:
    """Messages of a rank in the forward and in the backward pass. Each cut matrix adds up the gradient of its own input.

    Logits stay cut: the loss exchanges three numbers a token in two collectives. `sequence_parallel`: attention and feed-forward of each
    layer gather tokens on the way in, and their gradients on the way out.
    """
    forward, backward = Messages(), Messages()
    if sequence_parallel:
        block = Messages(gathered=shape.hidden, collectives=1)
        forward, backward = (block.times(2 * shape.layers + 1), block.times(2 * shape.layers + 1))  # and around all layers
    for p in shape.projections:
        cut = cuts(shape, degree)[key(p)]
        if p.stage == "head" and cut == "gathered columns":
            cut = "columns"
            forward += Messages(summed=3, collectives=2)
        there, back = _MESSAGES[cut](p)
        forward, backward = forward + there.times(p.layers * p.active), backward + back.times(p.layers * p.active)
    if _vocabulary_divides(shape, degree):
        forward += Messages(summed=shape.hidden, collectives=1)  # lookups
    return forward, backward


_MESSAGES: Mapping[Cut, Callable[[Projection], tuple[Messages, Messages]]] = {
    "columns": lambda p: (Messages(), Messages(summed=p.inputs, collectives=1)),
    "rows": lambda p: (Messages(summed=p.outputs, collectives=1), Messages()),
    "gathered columns": lambda p: (Messages(gathered=p.outputs, collectives=1), Messages(summed=p.inputs, collectives=1)),
    "split rows": lambda p: (Messages(summed=p.outputs, collectives=1), Messages(gathered=p.inputs, collectives=1)),
    "whole": lambda _: (Messages(), Messages()),
}


def choices(task: TrainTask, shape: ModelShape, gpu: Gpu, workers: int, gpus_per_node: int) -> tuple[int, ...]:
    """Degrees that a planner may choose, in ascending order.

    Only 1 where the task names a degree, where its batch does not divide over the workers, and on `cpu`, where ranks share one memory.
    """
    if gpu.is_cpu or "tensor_parallel" in task.layout.model_fields_set or not task.batch.divides_over(workers):
        return (1,)
    return (1, *degrees(task, shape, workers, gpus_per_node))


def degrees(task: TrainTask, shape: ModelShape, workers: int, gpus_per_node: int) -> Iterator[int]:
    """Degrees above 1 that divide heads, workers and the GPUs of a machine, for a task whose matrices training can cut; in ascending
    order.
    """
    asked = task.layout
    sharded = asked.context_parallel > 1 or asked.shard_within != "none" or asked.quantised_all_reduce != "none" or asked.zero == 3
    moved = asked.offload.optimizer != "none" or asked.offload.parameters != "none"
    plain = task.method.name in ("full", "lora") and task.optimizer.name == "adamw" and asked.liger is not True
    if sharded or moved or not plain or not shape.exact:
        return
    yield from (d for d in _DEGREES if workers % d == 0 and gpus_per_node % d == 0 and heads_divide(shape, d))


def refuse_degree(task: TrainTask, shape: ModelShape, gpu: Gpu, workers: int, gpus_per_node: int | None) -> None:
    """Raises BadInput for a degree that cuts no part of the model, crosses machines (of `gpus_per_node` GPUs, if known), or is combined
    with another way to cut the weights.
    """
    asked = task.layout
    degree = asked.tensor_parallel
    if degree == 1:
        return
    if not cuts_something(shape, degree):
        raise BadInput(f"{degree} ranks can share no matrix of a {shape.model_type} model", "set strategy.tensorParallel to 1")
    if not gpu.is_cpu and gpus_per_node is not None and gpus_per_node % degree:
        groups = math.gcd(workers, gpus_per_node)
        inside = " or ".join(str(d) for d in range(1, groups + 1) if groups % d == 0 and (d == 1 or cuts_something(shape, d)))
        raise BadInput(
            f"machines of {gpus_per_node} {gpu.sku} hold no whole number of tensor-parallel groups of {degree}",
            f"set strategy.tensorParallel to {inside}",
        )
    if asked.zero == 3:
        raise BadInput("ZeRO 3 and tensorParallel would both cut the weights", "set strategy.zero to auto, or tensorParallel to 1")
    if asked.offload.optimizer != "none" or asked.offload.parameters != "none":
        raise BadInput("offloading does not work with tensorParallel", "set strategy.offload to none, or tensorParallel to 1")


def _cut(shape: ModelShape, p: Projection, degree: int) -> Cut:
    if degree == 1 or p.stage == "router" or p.name == _SHARED_LATENT:
        return "whole"
    if p.stage == "head":
        if shape.tied and not _vocabulary_divides(shape, degree):
            return "whole"  # the rows of the embedding
        return _alone(shape, p, degree)
    if p.stage in ("up", "down"):
        inner = p.outputs if p.stage == "up" else p.inputs
        return _paired(p, "down") if inner % degree == 0 else "whole" if p.copies > 1 else _alone(shape, p, degree)
    feeds_latent = p.stage == "input" and any(each.stage == "latent" and each.inputs == p.outputs for each in shape.projections)
    if heads_divide(shape, degree) and not feeds_latent:
        return _paired(p, "output")
    return _alone(shape, p, degree)


def _paired(p: Projection, last: str) -> Cut:
    return "rows" if p.stage == last else "columns"


def _alone(shape: ModelShape, p: Projection, degree: int) -> Cut:
    """The cut along the dimension that moves less data. A small matrix, or one that does not divide, is whole."""
    if p.weights * 4 < shape.hidden**2:
        return "whole"
    columns, rows = _divides(shape, p.outputs, degree), _divides(shape, p.inputs, degree)
    if rows and (p.outputs < p.inputs or not columns):
        return "split rows"
    return "gathered columns" if columns else "whole"


def _vocabulary_divides(shape: ModelShape, degree: int) -> bool:
    return _divides(shape, shape.vocab, degree)


def _divides(shape: ModelShape, size: int, degree: int) -> bool:
    """Whether a dimension may be cut alone: also into unequal shares, where the degree divides something of the model."""
    pairs = heads_divide(shape, degree) or any(p.outputs % degree == 0 for p in shape.projections if p.stage == "up")
    return size % degree == 0 or (pairs and size >= degree)
