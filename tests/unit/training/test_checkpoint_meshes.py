"""Parts of parameters that are cut over tensor-parallel ranks: what any mesh writes, any other reads, whatever is cut and however often."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tuneyard.parallel import Share
from tuneyard.training.checkpoint.coverage import uncovered
from tuneyard.training.checkpoint.layout import RankIndex, whole
from tuneyard.training.checkpoint.pieces import WEIGHT, Group, Holding, runs_of
from tuneyard.training.checkpoint.reader import Reader
from tuneyard.training.checkpoint.shards import write_shard
from tuneyard.training.checkpoint.writer import take_snapshot


@st.composite
def shares(draw: st.DrawFn) -> Share:
    """Tensors of one to three dimensions, whole or cut over up to 4 ranks in one to three blocks of any size."""
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    if draw(st.integers(0, 4)) == 0:
        return Share(tuple(shape), draw(st.integers(1, 4)))
    degree, at = draw(st.integers(1, 4)), draw(st.integers(0, len(shape) - 1))
    blocks = tuple(draw(st.lists(st.integers(degree, 6), min_size=1, max_size=3)))
    return Share((*shape[:at], sum(blocks), *shape[at + 1 :]), degree, at, blocks)


def holding(share: Share, rank: int) -> Holding:
    return Holding(share.shape, runs_of(share, rank), share.replicated)


def written(share: Share, tensor: torch.Tensor, fragments: int, folder: Path) -> list[RankIndex]:
    """What the ranks of a mesh write: each its part, in as many fragments as ZeRO would cut its flattened tensor into."""
    indices = []
    for rank in range(1 if share.replicated else share.degree):
        own = share.cut(tensor, rank).reshape(-1)
        ends = [own.numel() * number // fragments for number in range(fragments + 1)]
        for number, (start, stop) in enumerate(itertools.pairwise(ends)):
            pieces = list(holding(share, rank).pieces("w", start, {WEIGHT: own[start:stop]}))
            snapshot = take_snapshot(iter([Group(pieces, {})]), {})
            files = [write_shard(folder / f"{rank}-{number}-{at}", shard) for at, shard in enumerate(snapshot.shards)]
            indices.append(RankIndex(rank=rank, files=tuple(files), pieces=tuple(snapshot.pieces)))
    return indices


@given(shares(), st.data())
def test_any_mesh_reads_what_any_other_wrote(tmp_path_factory: pytest.TempPathFactory, first: Share, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("checkpoint")
    tensor = torch.arange(1, 1 + torch.Size(first.shape).numel(), dtype=torch.float32).reshape(first.shape)
    indices = written(first, tensor, data.draw(st.integers(1, 3)), folder)

    assert uncovered(piece for index in indices for piece in index.pieces) == {}
    reader = Reader(folder, indices)
    assert torch.equal(reader.whole("w", WEIGHT), tensor)
    at = data.draw(st.integers(0, len(first.shape) - 1))
    degree = data.draw(st.integers(1, min(4, first.shape[at])))
    second = Share(first.shape, degree, at, (first.shape[at],))
    for rank in range(degree):
        own = torch.zeros(second.local_shape(rank))
        for piece in holding(second, rank).pieces("w", 0, {WEIGHT: own.reshape(-1)}):
            piece.tensors[WEIGHT].copy_(reader.read("w", WEIGHT, piece.box, piece.start, piece.stop))
        assert torch.equal(own, second.cut(tensor, rank))


def test_a_part_that_was_never_written_or_written_twice_is_seen(tmp_path: Path) -> None:
    share = Share((3, 8, 2), 2, 1, (4, 4))
    both = written(share, torch.zeros(share.shape), 1, tmp_path)
    pieces = [piece for index in both for piece in index.pieces]

    assert len(pieces) == 2 * 3 * 2  # of each rank, for each index before the cut dimension, a run in each block
    assert uncovered(both[0].pieces) == {"weight of w": "misses 24 of 48 elements"}
    again = written(Share(share.shape, 1), torch.zeros(share.shape), 1, tmp_path)
    assert uncovered([*pieces, *again[0].pieces]) == {"weight of w": "has boxes that overlap or reach beyond it"}
    assert again[0].pieces[0].box == whole(share.shape)
