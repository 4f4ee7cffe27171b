"""Leaves are those that torch's pytree finds, whatever operations are called with."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._pytree import tree_flatten, tree_map

from tuneyard.parallel.trees import leaves, mapped

Pair = namedtuple("Pair", "first second")

_LEAVES: Any = st.none() | st.integers() | st.text(max_size=2) | st.just(torch.Size((2, 3))) | st.just(torch.float32) | st.just(slice(2))


def _containers(inner: Any) -> Any:
    lists = st.lists(inner, max_size=3)
    dicts = st.dictionaries(st.text(max_size=2), inner, max_size=3)
    return lists | lists.map(tuple) | dicts | dicts.map(OrderedDict) | st.tuples(inner, inner).map(lambda both: Pair(*both))


@given(st.recursive(_LEAVES, _containers, max_leaves=12))
def test_trees_are_walked_as_torch_walks_them(tree: Any) -> None:
    assert leaves(tree) == tree_flatten(tree)[0]
    ours_saw, theirs_saw = list[Any](), list[Any]()
    ours, theirs = mapped(_noted(ours_saw), tree), tree_map(_noted(theirs_saw), tree)
    assert ours == theirs
    assert ours_saw == theirs_saw
    assert type(ours) is type(theirs)


def _noted(seen: list[Any]) -> Any:
    def note(leaf: Any) -> str:
        seen.append(leaf)
        return f"<{leaf}>"

    return note
