"""Layouts of views and slices, beside real tensors that are really cut."""

from __future__ import annotations

import math

import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tuneyard.parallel.layout import Conflict, Sharded, local_shape, sliced, viewed

SIZES = st.lists(st.sampled_from([1, 2, 3, 4, 6, 8]), min_size=1, max_size=4)


def part(tensor: torch.Tensor, layout: Sharded, rank: int, degree: int) -> torch.Tensor:
    """The rank's share: its piece of every segment, in order."""
    runs = tensor.chunk(layout.segments, layout.dimension)
    return torch.cat([run.chunk(degree, layout.dimension)[rank] for run in runs], layout.dimension)


@settings(deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(old=SIZES, new=SIZES, dimension=st.integers(0, 3), segments=st.sampled_from([1, 2, 3]), degree=st.sampled_from([2, 3]))
def test_a_view_of_a_share_is_the_share_of_the_view(old: list[int], new: list[int], dimension: int, segments: int, degree: int) -> None:
    assume(dimension < len(old) and old[dimension] % (segments * degree) == 0)
    # Make the sizes fit: the last dimension of the new shape takes what is left.
    total = math.prod(old)
    assume(total % math.prod(new) == 0)
    shape = (*new, total // math.prod(new))
    whole, layout = torch.arange(total).view(*old), Sharded(dimension, segments, frozenset({"a"}))
    try:
        found = viewed(layout, tuple(old), shape, degree)
    except Conflict:
        return
    for rank in range(degree):
        local = part(whole, layout, rank, degree).reshape(local_shape(shape, found, degree))
        assert torch.equal(local, part(whole.view(shape), found, rank, degree))


@settings(deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(blocks=st.sampled_from([1, 2, 3]), block=st.sampled_from([4, 8]), start=st.integers(0, 3), count=st.integers(1, 3))
def test_a_block_cut_out_of_a_share_is_the_share_of_the_block(blocks: int, block: int, start: int, count: int) -> None:
    assume(start + count <= blocks)
    size, degree = blocks * block, 2
    whole, layout = torch.arange(size), Sharded(0, blocks, frozenset({"a"}))

    found = sliced(layout, size, start * block, (start + count) * block, degree)

    for rank in range(degree):
        local = part(whole, layout, rank, degree)[start * block // degree : (start + count) * block // degree]
        assert torch.equal(local, part(whole[start * block : (start + count) * block], found, rank, degree))
