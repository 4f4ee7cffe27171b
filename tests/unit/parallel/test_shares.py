"""Shares of parameters: boxes that tile the whole, cut and joined without loss."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from tuneyard.parallel import Share


@st.composite
def shares(draw: st.DrawFn) -> Share:
    degree = draw(st.integers(1, 5))
    blocks = tuple(draw(st.lists(st.integers(degree, 9), min_size=1, max_size=3)))
    shape = [draw(st.integers(1, 4)) for _ in range(draw(st.integers(1, 3)))]
    dimension = draw(st.integers(0, len(shape) - 1))
    shape[dimension] = sum(blocks)
    return Share(tuple(shape), degree, dimension, blocks)


@given(shares())
def test_the_ranks_shares_join_to_the_whole(share: Share) -> None:
    whole = torch.arange(torch.Size(share.shape).numel()).reshape(share.shape)

    parts = [share.cut(whole, rank) for rank in range(share.degree)]

    assert torch.equal(share.join(parts), whole)
    assert [tuple(part.shape) for part in parts] == [share.local_shape(rank) for rank in range(share.degree)]


@given(shares())
def test_boxes_lie_in_the_local_tensor_in_their_order(share: Share) -> None:
    whole = torch.arange(torch.Size(share.shape).numel()).reshape(share.shape)

    for rank in range(share.degree):
        boxes = [whole[tuple(slice(first, first + length) for first, length in box)] for box in share.boxes(rank)]
        assert torch.equal(torch.cat(boxes, share.dimension), share.cut(whole, rank))


def test_a_packed_weight_has_a_box_of_each_block() -> None:
    share = Share((8, 3), 2, 0, (4, 4))

    assert share.boxes(1) == (((2, 2), (0, 3)), ((6, 2), (0, 3)))


def test_what_does_not_divide_is_cut_unevenly() -> None:
    share = Share((7,), 2, 0, (7,))

    assert [share.local_shape(rank) for rank in range(2)] == [(4,), (3,)]


def test_a_replicated_parameter_is_one_box() -> None:
    share = Share((4, 2), 4)

    assert share.replicated
    assert share.boxes(3) == (((0, 4), (0, 2)),)
