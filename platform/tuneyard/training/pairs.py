"""Micro-batches of preference pairs, and the log-probabilities of their answers.

Pairs come as rows of two samples (chosen, rejected), or packed, with several pairs in a row. Unpacked samples become rows of their own,
which are padded: this works with every model, as packing does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tuneyard.api import TrainTask
from tuneyard.data.token_batch import IGNORED, RowParts, TokenBatch
from tuneyard.planning import CHUNK_ELEMENTS, Plan
from tuneyard.training.collate import Collator, Row


@dataclass(frozen=True)
class PairCollator:
    """Builds micro-batches of samples, chosen and rejected in turn.

    - `targets`: the tokens to predict. `places`: where, in the logits of the last `last` tokens of all rows, laid end to end.
    - `counts`: of each sample, the number of its targets, in the order of `places`.
    """

    whole: Collator
    packed: bool

    @classmethod
    def of(cls, task: TrainTask, plan: Plan, pad_token_id: int | None) -> PairCollator:
        return cls(Collator.of(task, plan, pad_token_id), task.data.pack)

    def __call__(self, rows: TokenBatch | Sequence[Row]) -> dict[str, Any]:
        """The inputs of the model, the fields above, and `tokens` and `squares` as of `Collator`."""
        given = rows if isinstance(rows, TokenBatch) else TokenBatch.of_rows(rows)
        batch = self.whole(given if self.packed else _apart(given))
        labels = batch.pop("labels").numpy()
        width, following = labels.shape[1], np.full_like(labels, IGNORED)
        following[:, :-1] = labels[:, 1:]
        places = np.flatnonzero(following != IGNORED)
        first = int((places % width).min(initial=width - 1))
        rest = width - first
        return {
            **batch,
            "tokens": given.lengths.tolist(),
            "targets": torch.from_numpy(following.ravel()[places]),
            "places": torch.from_numpy(places // width * rest + places % width - first),
            "counts": self._counts(batch, places),
            "last": rest,
        }

    def _counts(self, batch: dict[str, Any], places: Any) -> list[int]:
        """Samples without targets, such as padding, are left out: each answer has one at least."""
        shape = batch["input_ids"].shape
        starts = np.zeros(shape, dtype=np.int64)
        starts[:, 0] = 1
        if self.packed:
            starts |= batch["position_ids"].numpy() == 0
        samples = starts.ravel().cumsum()[places]
        counts: list[int] = np.unique(samples, return_counts=True)[1].tolist()
        return counts


def _apart(rows: TokenBatch) -> TokenBatch:
    """The two samples of each row, each as a row."""
    assert rows.position_ids is not None
    parts = []
    for ids, labels, positions, length in zip(rows.input_ids, rows.labels, rows.position_ids, rows.lengths.tolist(), strict=True):
        _, second = np.flatnonzero(positions[:length] == 0)
        parts += [RowParts(ids[:second], labels[:second]), RowParts(ids[second:length], labels[second:length])]
    return TokenBatch.of_parts(parts)


def answer_sums(logits: torch.Tensor, batch: dict[str, Any]) -> torch.Tensor:
    """For each sample, the log-probability of its targets: fp64 (samples), because an answer of a thousand tokens has one of thousands, of
    which small differences count. `logits` (rows, tokens, vocabulary): of the last `last` tokens or more. Sums of single samples do not
    depend on other samples, or on how a GPU orders its work.
    """
    kept = logits[:, -batch["last"] :]
    each = _LogProbabilities.apply(kept.reshape(-1, kept.shape[-1]), batch["places"], batch["targets"])
    return torch.stack([sample.sum(dtype=torch.float64) for sample in each.split(batch["counts"])])


class _LogProbabilities(torch.autograd.Function):
    """log softmax(logits[places])[targets] in fp32. Beside the logits only their gradient is kept, in their dtype: log_softmax would keep
    an fp32 copy of all logits, and its backward pass would make another.
    """

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, places: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        found, norms = [], []
        for at, target in _chunks(logits, places, targets):
            scores = logits[at].float()
            norms.append(scores.logsumexp(dim=-1))
            found.append(scores.gather(-1, target[:, None])[:, 0] - norms[-1])
        ctx.save_for_backward(logits, places, targets, torch.cat(norms))
        return torch.cat(found)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        logits, *others = ctx.saved_tensors
        result = torch.zeros_like(logits)
        for at, target, norm, share in _chunks(logits, *others, gradient):
            change = logits[at].float().sub_(norm[:, None]).exp_().mul_(-share[:, None])
            change.scatter_add_(-1, target[:, None], share[:, None])
            result[at] = change.to(result.dtype)
        return result, None, None


def _chunks(logits: torch.Tensor, *each: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Parts of tensors with an entry for each target."""
    size = max(1, CHUNK_ELEMENTS // logits.shape[-1])
    return zip(*(tensor.split(size) for tensor in each), strict=True)
