"""A batch of whole rows -> the slice of one rank of a context group. Pure: no process group."""

from __future__ import annotations

from typing import Any

import torch

from tuneyard.parallel.context.attention import Spans

SPANS, MASK, LONGEST = "context_spans", "context_mask", "context_longest"
"""Keys of a slice that `ContextParallel` removes before the model sees them."""
_IGNORED = -100


def row_slice(batch: dict[str, Any], index: int, ranks: int, pad_token_id: int = 0) -> dict[str, Any]:
    """Slice `index` of a batch from `tuneyard.training.collate.Collator`: (rows, tokens) -> (rows, tokens / ranks), rounded up.

    Rows are padded to a multiple of `ranks` with tokens that do not count. `position_ids` are those of the whole row. `labels` begin one
    token early, so that `targets` are the tokens that follow each token of the slice, also across its border. Only the first rank keeps
    `tokens` and `squares`: the sums over ranks stay those of the rows.
    """
    ids: torch.Tensor = batch["input_ids"]
    rows, width = ids.shape
    size = -(-width // ranks)
    begin, end = index * size, (index + 1) * size
    packed = "position_ids" in batch
    positions = batch["position_ids"] if packed else torch.arange(width, device=ids.device).expand(rows, width)
    cut = {
        "input_ids": _filled(ids, size * ranks, pad_token_id)[:, begin:end],
        # Every table of positions has a position 0; it starts a separate sample.
        "position_ids": _filled(positions, size * ranks, 0)[:, begin:end],
        # Without a padding mask, a model would look for packed samples in the positions of its slice.
        "attention_mask": torch.ones(rows, size, dtype=torch.long, device=ids.device),
        SPANS: spans_of(_filled(positions, size * ranks, 0)) if packed else None,
        LONGEST: int(positions.max()),
        MASK: _filled(batch.get("attention_mask", torch.ones_like(ids)), size * ranks, 0),
    }
    if "labels" in batch:
        labels = _filled(batch["labels"], size * ranks + 1, _IGNORED)[:, begin : end + 1].clone()
        if index:
            labels[:, 0] = _IGNORED  # predicted by the slice before
        cut["labels"] = labels
    if "tokens" in batch:
        first = index == 0
        cut |= {"tokens": batch["tokens"] if first else [0] * rows, "squares": batch["squares"] if first else 0}
    return {name: value.contiguous() if isinstance(value, torch.Tensor) else value for name, value in cut.items()}


def targets(labels: torch.Tensor) -> torch.Tensor:
    """Labels of a slice -> for each of its tokens, the token to predict."""
    return labels[:, 1:].contiguous()


def spans_of(position_ids: torch.Tensor) -> Spans:
    """Samples of packed rows: each begins at a position of 0. Padding after the last one (positions of 0) counts as one sample."""
    found = []
    for row in position_ids:
        length = row.numel()
        filled = row.flip(0).ne(0).to(torch.int8)
        padding = int(filled.argmax()) if bool(filled.any()) else length
        starts = torch.nonzero(row == 0).flatten().tolist()
        starts = sorted({0, *(start for start in starts if start <= length - padding)} - {length})
        found.append(tuple(zip(starts, [*starts[1:], length], strict=True)))
    return tuple(found)


def _filled(tensor: torch.Tensor, width: int, value: int) -> torch.Tensor:
    missing = width - tensor.shape[1]
    return torch.nn.functional.pad(tensor, (0, missing), value=value) if missing else tensor
