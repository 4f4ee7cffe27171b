"""Context parallelism in a plan: tokens of a row per rank, exchanges around attention, and the degrees that a model allows.

Ulysses (Jacobs et al. 2023): each rank of a group holds a slice of the tokens of each row. Before attention, the ranks exchange slices of
queries, keys and values, so that each rank has whole rows of a share of the heads. After attention they exchange the result back. That is
four all-to-alls per layer and pass. Each moves (n - 1) / n of a rank's data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tuneyard.api import BadInput, TrainTask
from tuneyard.catalog import ModelShape, attention_kinds
from tuneyard.planning.links import Links
from tuneyard.planning.setup import BYTES, Setup

EXCHANGES = 4
"""All-to-alls per layer and pass: queries, keys, values, and the result."""


def slice_tokens(setup: Setup) -> int:
    """Tokens of a row that one rank holds. Rows are padded to a multiple of the degree."""
    return -(-setup.layout.seq_len // setup.layout.context_parallel)


def row_exchange_s(setup: Setup, links: Links, rows: int) -> float:
    """Seconds of a rank's exchanges in the forward and backward pass of a micro-batch of `rows` rows."""
    layout, shape = setup.layout, setup.shape
    degree = layout.context_parallel
    if degree == 1:
        return 0.0
    keys = shape.kv_heads * degree // math.gcd(shape.kv_heads, degree)  # key heads are repeated until each rank has one
    elements = (shape.heads + keys) * (shape.head_dim + shape.value_dim)
    size = rows * slice_tokens(setup) * elements * BYTES[layout.precision] / layout.tensor_parallel
    latency = links.ring_s(0.0, degree, stride=layout.tensor_parallel)
    once = links.ring_s(size, degree, stride=layout.tensor_parallel) + (EXCHANGES - 1) * latency
    return shape.layers * passes(setup) * once


def passes(setup: Setup) -> int:
    """Attention passes in a micro-batch: forward, backward, and one more where layers are recomputed."""
    return 3 if setup.layout.recompute else 2


def degrees(shape: ModelShape, workers: int) -> Iterator[int]:
    """Degrees above 1 that divide the workers and the heads, in ascending order."""
    return (degree for degree in range(2, workers + 1) if workers % degree == 0 and shape.heads % degree == 0)


def refuse_degree(task: TrainTask, shape: ModelShape, workers: int) -> None:
    """Raises BadInput for a degree that does not divide the workers or the heads, or for a model without SDPA."""
    degree = task.layout.context_parallel
    if degree == 1:
        return
    if "sdpa" not in attention_kinds(shape.model_type):
        raise BadInput(
            f"a {shape.model_type} model has no sdpa attention in transformers, which contextParallel needs",
            "set strategy.contextParallel to 1",
        )
    works = f"strategy.contextParallel to {_listed([1, *degrees(shape, workers)])}"
    if workers % degree:
        more = "" if shape.heads % degree else f"resources.workers to a multiple of {degree}, or "
        raise BadInput(
            f"{workers} workers make no whole number of groups of {degree} that share rows (contextParallel)", f"set {more}{works}"
        )
    if shape.heads % degree:
        raise BadInput(f"{degree} ranks cannot share {shape.heads} attention heads evenly, as contextParallel asks", f"set {works}")


def _listed(values: list[int]) -> str:
    return " or ".join(str(value) for value in values)
