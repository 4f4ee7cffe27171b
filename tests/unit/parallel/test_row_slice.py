"""Batches of whole rows, cut for the ranks of a context group: together the slices are the rows, and no token counts twice."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from tuneyard.parallel.context import MASK, row_slice, targets
from tuneyard.parallel.context.row_slice import SPANS
from tuneyard.training.collate import Collator


@given(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=4), min_size=1, max_size=3), st.integers(1, 5))
def test_slices_of_packed_rows_are_the_rows(samples: list[list[int]], ranks: int) -> None:
    """`samples`: the lengths of the samples of each row."""
    whole = Collator(0)(
        [
            {
                "input_ids": list(range(100, 100 + sum(lengths))),
                "labels": list(range(100, 100 + sum(lengths))),
                "position_ids": [position for length in lengths for position in range(length)],
            }
            for lengths in samples
        ]
    )
    slices = [row_slice(whole, index, ranks) for index in range(ranks)]
    width = whole["input_ids"].shape[1]

    for name in ("input_ids", "position_ids"):
        assert torch.equal(torch.cat([each[name] for each in slices], dim=1)[:, :width], whole[name])
    following = torch.nn.functional.pad(whole["labels"], (0, 1), value=-100)[:, 1:]
    assert torch.equal(torch.cat([targets(each["labels"]) for each in slices], dim=1)[:, :width], following)
    assert sum(int((each["labels"] != -100).sum()) for each in slices) == int((whole["labels"] != -100).sum())
    assert sum(sum(each["tokens"]) for each in slices) == sum(map(sum, samples))
    assert sum(each["squares"] for each in slices) == whole["squares"]


@given(st.lists(st.integers(2, 9), min_size=1, max_size=4), st.integers(0, 6))
def test_spans_are_the_samples_and_then_the_padding(lengths: list[int], padding: int) -> None:
    ends = [sum(lengths[: number + 1]) for number in range(len(lengths))]
    position_ids = torch.tensor([[position for length in lengths for position in range(length)] + [0] * padding])
    batch = {"input_ids": torch.ones_like(position_ids), "position_ids": position_ids}

    [spans] = row_slice(batch, 0, 1)[SPANS]

    expected = list(zip([0, *ends[:-1]], ends, strict=True)) + ([(ends[-1], ends[-1] + padding)] if padding else [])
    assert list(spans) == expected


def test_padding_of_a_row_and_up_to_a_multiple_of_the_ranks_does_not_count() -> None:
    batch = Collator(1)([{"input_ids": [5, 6, 7], "labels": [5, 6, 7]}, {"input_ids": [8], "labels": [8]}])

    first, second = (row_slice(batch, index, 2, pad_token_id=1) for index in range(2))

    assert first[MASK].tolist() == second[MASK].tolist() == [[1, 1, 1, 0], [1, 0, 0, 0]]
    assert second["input_ids"].tolist() == [[7, 1], [1, 1]]
    assert targets(second["labels"]).tolist() == [[-100, -100], [-100, -100]]
    assert targets(first["labels"]).tolist() == [[6, 7], [-100, -100]]
