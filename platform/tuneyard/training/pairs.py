"""Micro-batches of preference pairs, and the log-probabilities of their answers.

Pairs come as rows of two samples (chosen, rejected), or packed, with several pairs in a row. Unpacked samples become rows of their own,
which are padded: this works with every model, as packing does not. With context parallelism a micro-batch holds a slice of each row, and
the ranks add up what their slices say of a sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tuneyard.api import TrainTask
from tuneyard.data.token_batch import IGNORED, RowParts, TokenBatch
from tuneyard.parallel import VocabularyParts
from tuneyard.parallel.context import ContextParallel, row_slice
from tuneyard.planning import CHUNK_ELEMENTS, Plan
from tuneyard.training.collate import Collator, Row


@dataclass(frozen=True)
class PairCollator:
    """Builds micro-batches of samples, chosen and rejected in turn. `index` of `ranks`: the slice of each row that this rank has.

    - `targets`: the tokens to predict. `places`: where, in the logits of the last `last` tokens of all rows of the slice, laid end to end.
    - `counts`: of each sample, the number of its targets. `held`: of these, the ones in this slice, in the order of `places`.
    """

    whole: Collator
    packed: bool
    index: int = 0
    ranks: int = 1

    @classmethod
    def of(cls, task: TrainTask, plan: Plan, pad_token_id: int | None, context: ContextParallel | None = None) -> PairCollator:
        """The collator of a task. `context`: the ranks that share rows; None: each rank has whole rows."""
        place = (context.index, context.ranks) if context is not None else (0, 1)
        return cls(Collator.of(task, plan, pad_token_id), task.data.pack, *place)

    def __call__(self, rows: TokenBatch | Sequence[Row]) -> dict[str, Any]:
        """The inputs of the model, the fields above, and `tokens` and `squares` as of `Collator`."""
        given = rows if isinstance(rows, TokenBatch) else TokenBatch.of_rows(rows)
        batch = self.whole(given if self.packed else _apart(given))
        labels = batch.pop("labels").numpy()
        following = np.full_like(labels, IGNORED)
        following[:, :-1] = labels[:, 1:]
        places = np.flatnonzero(following != IGNORED)
        of_rows, columns = np.divmod(places, labels.shape[1])
        counts, samples = self._samples(batch, places)
        begin, width = 0, labels.shape[1]
        if self.ranks > 1:
            batch = row_slice(batch, self.index, self.ranks, self.whole.pad_token_id)
            width = batch["input_ids"].shape[1]
            begin = self.index * width
        own = (columns >= begin) & (columns < begin + width)
        columns = columns[own] - begin
        first = int(columns.min(initial=width - 1))
        return {
            **batch,
            # Another slice of the rows has counted them.
            "tokens": [0] * len(given.lengths) if self.index else given.lengths.tolist(),
            "targets": torch.from_numpy(following.ravel()[places[own]]),
            "places": torch.from_numpy(of_rows[own] * (width - first) + columns - first),
            "counts": counts.tolist(),
            "held": np.bincount(samples[own], minlength=len(counts)).tolist(),
            "last": width - first,
        }

    def _samples(self, batch: dict[str, Any], places: Any) -> tuple[Any, Any]:
        """The number of targets of each sample, and the sample of each target. Samples without targets, such as padding, are left out:
        each answer has one at least.
        """
        shape = batch["input_ids"].shape
        starts = np.zeros(shape, dtype=np.int64)
        starts[:, 0] = 1
        if self.packed:
            starts |= batch["position_ids"].numpy() == 0
        _, samples, counts = np.unique(starts.ravel().cumsum()[places], return_inverse=True, return_counts=True)
        return counts, samples


def _apart(rows: TokenBatch) -> TokenBatch:
    """The two samples of each row, each as a row."""
    assert rows.position_ids is not None
    parts = []
    for ids, labels, positions, length in zip(rows.input_ids, rows.labels, rows.position_ids, rows.lengths.tolist(), strict=True):
        _, second = np.flatnonzero(positions[:length] == 0)
        parts += [RowParts(ids[:second], labels[:second]), RowParts(ids[second:length], labels[second:length])]
    return TokenBatch.of_parts(parts)


@dataclass(frozen=True)
class Cut:
    """How ranks share the logits of a model. `vocabulary`: the ranks that hold parts of the vocabulary; `context`: slices of rows."""

    vocabulary: VocabularyParts | None = None
    context: ContextParallel | None = None


def answer_sums(logits: torch.Tensor, batch: dict[str, Any], cut: Cut = Cut()) -> torch.Tensor:
    """For each sample, the log-probability of its targets: fp64 (samples), because an answer of a thousand tokens has one of thousands, of
    which small differences count. `logits` (rows, tokens, vocabulary): of the last `last` tokens or more; this rank's part, by `cut`. Sums
    of single samples do not depend on other samples, or on how a GPU orders its work. Collective among the ranks of `cut`.
    """
    kept = logits[:, -batch["last"] :]
    each = _LogProbabilities.apply(kept.reshape(-1, kept.shape[-1]), batch["places"], batch["targets"], cut.vocabulary)
    sums = torch.stack([sample.sum(dtype=torch.float64) for sample in each.split(batch["held"])])
    return sums if cut.context is None else cut.context.summed(sums)


class _LogProbabilities(torch.autograd.Function):
    """log softmax(logits[places])[targets] in fp32. Beside the logits only their gradient is kept, in their dtype: log_softmax would keep
    an fp32 copy of all logits, and its backward pass would make another. With `parts`, logits are those of a part of the vocabulary, and
    ranks exchange three numbers for each target.
    """

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, places: torch.Tensor, targets: torch.Tensor, parts: VocabularyParts | None) -> torch.Tensor:
        found, norms = [], []
        for at, target in _chunks(parts, logits, places, targets):
            scores = logits[at].float()
            if parts is None:
                norms.append(scores.logsumexp(dim=-1))
                found.append(scores.gather(-1, target[:, None])[:, 0] - norms[-1])
            else:
                norm, score = parts.norms_and_scores(scores, target)
                norms.append(norm)
                found.append(score - norm)
        ctx.parts = parts
        ctx.save_for_backward(logits, places, targets, torch.cat(norms))
        return torch.cat(found)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        logits, *others = ctx.saved_tensors
        result = torch.zeros_like(logits)
        for at, target, norm, share in _chunks(ctx.parts, logits, *others, gradient):
            change = logits[at].float().sub_(norm[:, None]).exp_().mul_(-share[:, None])
            own, is_here = (target, None) if ctx.parts is None else ctx.parts.own(target)
            change.scatter_add_(-1, own[:, None], (share if is_here is None else share * is_here)[:, None])
            result[at] = change.to(result.dtype)
        return result, None, None, None


def _chunks(parts: VocabularyParts | None, logits: torch.Tensor, *each: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Parts of tensors with an entry for each target. Ranks whose parts of the vocabulary are unequal have equally many."""
    size = max(1, CHUNK_ELEMENTS // (logits.shape[-1] if parts is None else parts.largest))
    return zip(*(tensor.split(size) for tensor in each), strict=True)
