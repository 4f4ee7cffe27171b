"""Pieces of parameters: any cut can be read back as any other, what is missing is seen; and what people are told of an output."""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
import sys
import tempfile
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuneyard.api import BadInput
from tuneyard.storage import MANIFEST, CommitLog, Holder, Manifest, ManifestFile, Store, acquire, open_store
from tuneyard.training.checkpoint.catalogue import list_checkpoints, open_task, prune, verify
from tuneyard.training.checkpoint.coverage import uncovered
from tuneyard.training.checkpoint.layout import LOG, STATE, Box, PieceEntry, RankIndex, index_name, inside, name_of
from tuneyard.training.checkpoint.pieces import Group, Piece
from tuneyard.training.checkpoint.reader import Reader
from tuneyard.training.checkpoint.writer import take_snapshot, write_rank

Cut = list[tuple[Box, int, int]]
"""Runs of elements: box, start, stop."""
KINDS = ("weight", "exp_avg")

shapes = st.lists(st.integers(1, 6), min_size=0, max_size=3).map(tuple)


def parts(draw: Any, length: int) -> list[tuple[int, int]]:
    """`length` cut into one to four runs: start, stop."""
    inner = draw(st.sets(st.integers(1, length - 1), max_size=3)) if length > 1 else set()
    places = [0, *sorted(inner), length]
    return list(pairwise(places))


@st.composite
def cuts(draw: Any, shape: tuple[int, ...]) -> Cut:
    """Any way to cut a parameter: first into boxes, as tensor parallelism does, then each box into runs, as ZeRO does."""
    sides = [[(start, stop - start) for start, stop in parts(draw, length)] for length in shape]
    return [(box, start, stop) for box in product(*sides) for start, stop in parts(draw, math.prod(length for _, length in box))]


@st.composite
def cut_parameters(draw: Any, ways: int) -> dict[str, tuple[tuple[int, ...], list[Cut]]]:
    """Up to three parameters, each with its shape and several ways to cut it."""
    own = draw(st.lists(shapes, min_size=1, max_size=3))
    return {f"layers.{number}": (shape, [draw(cuts(shape)) for _ in range(ways)]) for number, shape in enumerate(own)}


def values_of(name: str, kind: str, shape: tuple[int, ...]) -> torch.Tensor:
    """Different for each element of each parameter."""
    offset = 1000.0 * KINDS.index(kind) + 10000.0 * int(name.rpartition(".")[2])
    return offset + torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape)


def run_of(whole: torch.Tensor, box: Box, start: int, stop: int) -> torch.Tensor:
    inside_box = whole[tuple(slice(first, first + length) for first, length in box)]
    return inside_box.reshape(-1)[start:stop]


def piece_of(name: str, shape: tuple[int, ...], box: Box, start: int, stop: int) -> Piece:
    return Piece(name, shape, start, {kind: run_of(values_of(name, kind, shape), box, start, stop) for kind in KINDS}, box)


def entries(shape: tuple[int, ...], cut: Cut) -> list[PieceEntry]:
    return [PieceEntry("w", shape, box, start, stop, KINDS, 0) for box, start, stop in cut]


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(cut_parameters(ways=2), st.integers(1, 4), st.integers(8, 200))
def test_what_one_layout_wrote_any_other_reads(parameters: Any, ranks: int, shard_bytes: int) -> None:
    everything = [piece_of(name, shape, *run) for name, (shape, (written, _)) in parameters.items() for run in written]
    with tempfile.TemporaryDirectory() as folder:
        store, root = open_store(folder), Path(folder)
        indices = [
            write_rank(store, root, root, "c", rank, take_snapshot(iter([Group(everything[rank::ranks], {})]), {}, shard_bytes=shard_bytes))
            for rank in range(ranks)
        ]
        reader = Reader(root / "c", [RankIndex.from_json(index.to_json()) for index in indices])

        for (name, (shape, (_, asked))), kind in product(parameters.items(), KINDS):
            expected = values_of(name, kind, shape)
            assert torch.equal(reader.whole(name, kind), expected)
            for box, start, stop in asked:
                assert torch.equal(reader.read(name, kind, box, start, stop), run_of(expected, box, start, stop))
    assert uncovered(piece for index in indices for piece in index.pieces) == {}


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), shapes)
def test_a_piece_that_is_missing_or_there_twice_is_seen(data: st.DataObject, shape: tuple[int, ...]) -> None:
    whole = entries(shape, data.draw(cuts(shape)))
    one = data.draw(st.sampled_from(whole))
    others = [piece for piece in whole if piece is not one]

    assert uncovered(whole) == {}
    if others:
        missing = f"misses {one.stop - one.start} of {math.prod(shape)} elements"
        assert uncovered(others) == {f"{kind} of w": missing for kind in KINDS}
    assert uncovered([*others, replace(one, kinds=("weight",))]).keys() == ({"exp_avg of w"} if others else set())
    assert all("overlap" in reason for reason in uncovered([*whole, one]).values())
    assert len(uncovered([*whole, one])) == len(KINDS)


def test_pieces_of_other_shapes_and_beyond_the_parameter_are_seen() -> None:
    piece = PieceEntry("w", (4,), ((0, 4),), 0, 4, ("weight",), 0)
    assert uncovered([replace(piece, stop=5)]) == {"weight of w": "has pieces that overlap or reach beyond it"}
    assert uncovered([replace(piece, box=((1, 4),))]) == {"weight of w": "has boxes that overlap or reach beyond it"}
    assert uncovered([replace(piece, stop=2), replace(piece, shape=(2,))]) == {"weight of w": "has pieces of different shapes"}


# --- an output, made by hand


def holder(run: str = "r") -> Holder:
    return Holder.this_process(job="tune", attempt=1, run=run)


def write_checkpoint(store: Store, step: int, token: int, *, best_step: int = 0) -> str:
    """A checkpoint of one rank that is not committed yet; the hash of its manifest."""
    name, folder = name_of(step, token), Path(store.uri)
    index = write_rank(store, folder, folder, name, 0, take_snapshot(iter([Group([piece_of("w.0", (8,), ((0, 8),), 0, 8)], {})]), {}))
    small = {index_name(0): index.to_json(), STATE: json.dumps({"progress": {"best_step": best_step}}).encode()}
    store.put(inside(name, STATE), small[STATE])
    files = [*index.files, *(ManifestFile(path, len(raw), hashlib.sha256(raw).hexdigest()) for path, raw in small.items())]
    body = Manifest(tuple(files), {"layout": {"workers": 1, "zero": 0}}).to_json()
    store.put(inside(name, MANIFEST), body)
    return hashlib.sha256(body).hexdigest()


def output_with(folder: Path, steps: list[int], *, best_step: int = 0, closed: bool = True) -> Store:
    """What one attempt leaves that committed these steps."""
    store = open_store(str(folder))
    fence = CommitLog(store, LOG).open(holder().to_dict())
    for step in steps:
        fence.commit(step, name_of(step, fence.token), write_checkpoint(store, step, fence.token, best_step=best_step))
    if closed:
        fence.close()
    return store


def steps_in(store: Store) -> list[int]:
    return [stored.step for stored in list_checkpoints(store).checkpoints]


def test_the_catalogue_loads_no_torch() -> None:
    code = "import sys, tuneyard.training.checkpoint.catalogue, tuneyard.cli.checkpoints; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_a_list_says_what_counts_who_writes_and_what_is_left_over(tmp_path: Path) -> None:
    store = output_with(tmp_path, [2, 10], closed=False)
    write_checkpoint(store, 12, 1)

    found = list_checkpoints(store)

    assert [(stored.step, stored.token, stored.workers, stored.zero, stored.whole) for stored in found.checkpoints] == [
        (2, 1, 1, 0, True),
        (10, 1, 1, 0, True),
    ]
    assert all(stored.committed_at and stored.size_bytes > 0 for stored in found.checkpoints)
    assert [left.folder for left in found.leftovers] == ["checkpoints/step-12.1"]
    assert (found.held, found.alive, found.holder["job"]) == (True, True, "tune")


def test_what_retention_removed_is_no_damage_and_what_is_lost_is(tmp_path: Path) -> None:
    store = output_with(tmp_path, [2, 4, 6])
    store.delete_prefix(name_of(2, 1))
    assert steps_in(store) == [4, 6]
    assert verify(store).damages == ()

    store.delete_prefix(name_of(6, 1))
    assert [(damage.path, damage.reason) for damage in verify(store).damages] == [("checkpoints/step-6.1/manifest.json", "is missing")]


def test_pieces_that_do_not_cover_a_parameter_are_damage_even_where_all_hashes_are_right(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    index = write_rank(
        store, tmp_path, tmp_path, name_of(1, 1), 0, take_snapshot(iter([Group([piece_of("w.0", (8,), ((0, 8),), 0, 6)], {})]), {})
    )
    raw = index.to_json()
    files = (*index.files, ManifestFile(index_name(0), len(raw), hashlib.sha256(raw).hexdigest()))
    store.put(inside(name_of(1, 1), MANIFEST), Manifest(files).to_json())
    fence = CommitLog(store, LOG).open(holder().to_dict())
    fence.commit(1, name_of(1, 1), hashlib.sha256(Manifest(files).to_json()).hexdigest())

    assert {f"{damage.path} {damage.reason}" for damage in verify(store).damages} == {
        f"checkpoints/step-1.1 {kind} of w.0 misses 2 of 8 elements" for kind in KINDS
    }


def test_prune_keeps_the_newest_and_the_best_and_removes_the_rest(tmp_path: Path) -> None:
    store = output_with(tmp_path, [2, 4, 6, 8], best_step=4)
    write_checkpoint(store, 9, 1)
    planned = prune(store, keep=1, dry_run=True)
    assert steps_in(store) == [2, 4, 6, 8]

    done = prune(store, keep=1)

    assert planned == done
    assert done.kept == (4, 8)
    assert [folder.folder for folder in done.removed] == [name_of(2, 1), name_of(6, 1), name_of(9, 1)]
    assert steps_in(store) == [4, 8]
    assert verify(store).damages == ()
    assert prune(store, keep=1).removed == ()


def test_prune_counts_only_checkpoints_that_can_be_used(tmp_path: Path) -> None:
    store = output_with(tmp_path, [2, 4])
    store.delete(inside(name_of(4, 1), MANIFEST))

    assert prune(store, keep=1).kept == (2,)


@pytest.mark.parametrize("dry_run", [True, False])
def test_prune_is_refused_while_an_attempt_lives_and_not_after_it_died(tmp_path: Path, dry_run: bool) -> None:
    store = output_with(tmp_path, [2, 4])
    lease = acquire(store, LOG, holder("another run"))
    with pytest.raises(BadInput, match="tune"):
        prune(store, keep=1, dry_run=dry_run)
    assert steps_in(store) == [2, 4]
    lease.close()

    code = (
        "import sys; from tuneyard.storage import Holder, acquire, open_store\n"
        "acquire(open_store(sys.argv[1]), 'checkpoints/log', Holder.this_process(job='t', attempt=1, run=''))"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert list_checkpoints(store).alive is False
    assert prune(store, keep=1, dry_run=dry_run).kept == (4,)


def test_a_task_is_found_at_around_and_below_a_uri(tmp_path: Path) -> None:
    output_with(tmp_path / "job" / "train", [2])
    for uri in ("job/train", "job/train/", "job/train/checkpoints", "job"):
        assert steps_in(open_task(f"{tmp_path}/{uri}")) == [2]

    output_with(tmp_path / "job" / "again", [3])
    with pytest.raises(BadInput, match="2 tasks: again, train"):
        open_task(str(tmp_path / "job"))
    with pytest.raises(BadInput, match="holds no checkpoints"):
        open_task(str(tmp_path / "nothing"))
