"""Free GPUs are counted as they change; the count is what counting anew gives."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneyard.federation import Member, Node, Running, SkuFacts
from tuneyard.federation.pools import Pools

SIZES = (1, 2, 3, 4, 8, 16)
KINDS = (SkuFacts("a100-80gb", 8), SkuFacts("h100-80gb", 8))


def member(name: str, gpus: list[int], free: list[int]) -> Member:
    nodes = [Node(f"n{at}", KINDS[at % 2].name, most, min(most, left)) for at, (most, left) in enumerate(zip(gpus, free, strict=True))]
    return Member(name=name, skus=KINDS, nodes=tuple(nodes))


def attempt(number: int, cluster: str, node: int, gpus: int) -> Running:
    return Running(
        job=f"j/{number}",
        task="train",
        team="t",
        priority="normal",
        cluster=cluster,
        sku=KINDS[node % 2].name,
        nodes={f"n{node}": gpus},
        started=0.0,
        ends=10.0,
        saved=0.0,
    )


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["member", "hold", "release", "remove"]),
        st.sampled_from("abc"),
        st.integers(0, 3),
        st.sampled_from([1, 2, 4, 8, 12]),
    ),
    max_size=30,
)


@given(changes=CHANGES)
@settings(max_examples=60, deadline=None)
def test_room_is_kept_up_to_date(changes: list[tuple[str, str, int, int]]) -> None:
    pools, held = Pools(), {}
    for number, (what, cluster, node, gpus) in enumerate(changes):
        if what == "member":
            pools.set_member(member(cluster, [gpus] * (node + 1), [gpus - node] * (node + 1)))
        elif what == "hold":
            held[number] = attempt(number, cluster, node, gpus)
            pools.hold(held[number])
        elif what == "release" and held:
            pools.release(held.pop(min(held)))
        elif what == "remove":
            pools.remove_member(cluster)
        for size in SIZES:
            assert np.array_equal(pools.room(size), pools.counts @ pools.weights(size))
            assert pools.most_room(size) == max(pools.room(size).tolist(), default=0)
