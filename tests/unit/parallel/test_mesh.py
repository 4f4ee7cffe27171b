"""The mesh: each rank has one place, and each kind of group holds every rank once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneyard.api import BadInput
from tuneyard.parallel import Mesh

meshes = st.builds(lambda data, context, tensor: Mesh(data=data, context=context, tensor=tensor), *[st.integers(1, 6)] * 3)


@given(meshes)
def test_places_and_ranks_are_one_to_one(mesh: Mesh) -> None:
    places = [mesh.place(rank) for rank in range(mesh.size)]
    assert [mesh.rank(place) for place in places] == list(range(mesh.size))
    assert len(set(places)) == mesh.size


@given(meshes)
def test_every_rank_is_in_one_group_of_each_kind(mesh: Mesh) -> None:
    for groups in (mesh.tensor_groups(), mesh.context_groups(), mesh.gradient_groups()):
        assert sorted(rank for group in groups for rank in group) == list(range(mesh.size))


@given(meshes)
def test_groups_are_along_their_axes(mesh: Mesh) -> None:
    for group in mesh.tensor_groups():
        assert group == list(range(group[0], group[0] + mesh.tensor))  # neighbours: one host
    for group in mesh.context_groups():
        assert len({(mesh.place(rank).data, mesh.place(rank).tensor) for rank in group}) == 1
    for group in mesh.gradient_groups():
        assert len({mesh.place(rank).tensor for rank in group}) == 1


def test_workers_that_make_no_whole_group_are_refused() -> None:
    assert Mesh.over(8, context=2, tensor=2) == Mesh(data=2, context=2, tensor=2)
    for workers in (3, 6, 2):
        with pytest.raises(BadInput, match="no whole number of groups of 4"):
            Mesh.over(workers, context=2, tensor=2)
