"""Embeddings and gradients in fewer bits: how far off they arrive, and what does not fit."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
import torch

from tuneyard.api import BadInput
from tuneyard.planning import vector_bytes
from tuneyard.ranking.tables import wire as module
from tuneyard.ranking.tables.wire import decoded, encoded, refuse_unsupported

WIRES: tuple[Any, ...] = ("fp32", "fp16", "int8")


def sent(vectors: torch.Tensor, wire: Any) -> torch.Tensor:
    return decoded(encoded(vectors, wire), wire, vectors.shape[1])


@pytest.mark.parametrize("size", [1e-30, 1e-9, 1.0, 1e6, 1e30])
@pytest.mark.parametrize(("rows", "width"), [(200, 1), (200, 7), (200, 64), (1, 5)])
def test_an_element_arrives_within_the_stated_error_whatever_its_size(rows: int, width: int, size: float) -> None:
    torch.manual_seed(0)
    vectors = torch.randn(rows, width) * size
    peak = vectors.abs().amax(1, keepdim=True)
    assert torch.equal(sent(vectors, "fp32"), vectors)
    assert ((sent(vectors, "fp16") - vectors).abs() <= vectors.abs() * 2**-11 + peak * 2**-39).all()
    assert ((sent(vectors, "int8") - vectors).abs() <= peak * (1 / 254 + 1e-6)).all()


@pytest.mark.parametrize("wire", WIRES)
def test_as_many_bytes_are_sent_as_the_planner_counts(wire: Any) -> None:
    made = encoded(torch.randn(3, 16), wire)
    assert made.numel() * made.element_size() == 3 * vector_bytes(16, wire)


@pytest.mark.parametrize("wire", WIRES)
def test_zeros_stay_zeros_and_no_vector_is_none(wire: Any) -> None:
    assert torch.equal(sent(torch.zeros(2, 5), wire), torch.zeros(2, 5))
    assert sent(torch.zeros(0, 5), wire).shape == (0, 5)


@pytest.mark.parametrize("wire", WIRES[1:])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_vector_that_is_not_finite_arrives_as_nan_and_its_neighbours_as_they_are(wire: Any, value: float) -> None:
    vectors = torch.ones(3, 4)
    vectors[1, 2] = value
    found = sent(vectors, wire)
    assert torch.isnan(found[1]).all()
    assert torch.allclose(found[[0, 2]], vectors[[0, 2]], rtol=1e-3)


def test_a_backend_that_was_not_tried_is_refused() -> None:
    with patch.multiple(module.dist, is_initialized=lambda: True, get_backend=lambda _group: "mpi"):
        refuse_unsupported("fp32", None)
        with pytest.raises(BadInput, match=r"tables.exchange int8 sends bytes, .* and these ranks use mpi"):
            refuse_unsupported("int8", None)
