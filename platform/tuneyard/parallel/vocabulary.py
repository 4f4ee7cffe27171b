"""Cross-entropy over a vocabulary that is cut over the ranks: logits are never gathered.

Each rank has the logits of its share of the tokens. For each position, the ranks exchange the maximum, the sum of exponentials and the
logit of the label (Megatron-LM's vocabulary-parallel loss, Shoeybi et al. 2019).
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from tuneyard.api import BadInput
from tuneyard.parallel.applied import Shards
from tuneyard.parallel.collectives import TensorGroup, all_slices, summed
from tuneyard.parallel.forwards import Columns, GatheredColumns
from tuneyard.parallel.modules import pattern
from tuneyard.parallel.plan import TensorParallelPlan
from tuneyard.parallel.shares import share_of


def vocabulary_parallel_loss(
    local_logits: torch.Tensor, labels: torch.Tensor, group: TensorGroup, vocabulary: int, num_items: Any = None, ignore_index: int = -100
) -> torch.Tensor:
    """Cross-entropy of `local_logits` [positions, this rank's tokens] and `labels` [positions], which are tokens of the whole vocabulary.

    Returns the sum over positions divided by `num_items`, or their mean, the same on all ranks. Positions with `ignore_index` do not count.
    """
    parts = VocabularyParts(group, vocabulary)
    logits = local_logits.float()
    logits = logits - parts.maximum(logits).unsqueeze(-1)
    own, is_here = parts.own(labels)
    of_label = logits.gather(-1, own.unsqueeze(-1)).squeeze(-1).masked_fill(~is_here, 0)
    exponentials, of_label = summed(torch.stack([logits.exp().sum(-1), of_label]), group).unbind()
    counted = labels != ignore_index
    losses = (exponentials.log() - of_label).masked_fill(~counted, 0)
    total: torch.Tensor = losses.sum() / (counted.sum() if num_items is None else num_items)
    return total


@dataclass(frozen=True, eq=False)
class VocabularyParts:
    """A vocabulary of `size` tokens, of which each rank of a group holds the logits of a part."""

    group: TensorGroup
    size: int

    @property
    def largest(self) -> int:
        """Tokens of the largest part."""
        return max(share_of(self.size, self.group.size, rank)[1] for rank in range(self.group.size))

    def own(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The places of tokens in this rank's part (0 for others), and whether they are in it."""
        first, length = share_of(self.size, self.group.size, self.group.rank)
        places = tokens - first
        is_here = (places >= 0) & (places < length)
        return places.masked_fill(~is_here, 0), is_here

    def maximum(self, logits: torch.Tensor) -> torch.Tensor:
        """The largest logit of each position, without gradient. Collective."""
        largest = logits.detach().amax(-1)
        if self.group.size > 1:
            dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=self.group.process_group)
        return largest

    def norms_and_scores(self, logits: torch.Tensor, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """log sum exp over the whole vocabulary, and the logits of `tokens`, at each position. `logits`: (positions, this rank's part).
        Collective, without gradient.
        """
        largest = self.maximum(logits)
        own, is_here = self.own(tokens)
        scores = logits.gather(-1, own.unsqueeze(-1)).squeeze(-1).masked_fill(~is_here, 0)
        exponentials, scores = summed(torch.stack([(logits - largest.unsqueeze(-1)).exp().sum(-1), scores]), self.group).unbind()
        return exponentials.log() + largest, scores


def keep_logits_sharded(model: nn.Module, plan: TensorParallelPlan, shards: Shards) -> None:
    """Make the model return the logits of this rank's share of the vocabulary, with the vocabulary-parallel loss as its own loss.

    The model is a causal language model of transformers that `shard_model` has cut by `plan`, without adapters on its head.

    Raises:
        BadInput: a head that is not cut, or whose results the model changes other than value by value; a loss of another kind.
    """
    loaded: Any = model
    head = loaded.get_output_embeddings()
    forward = vars(head).get("forward") if head is not None else None
    name = next((name for name, module in model.named_modules() if module is head), "")
    why = None
    if not isinstance(forward, GatheredColumns):
        why = "its head is not cut over the ranks"
    elif pattern(name) not in plan.ends:
        why = "the model mixes them before it returns them"
    elif not _has_plain_loss(loaded):
        why = "its loss is not that of transformers' causal language models"
    if why is not None or not isinstance(forward, GatheredColumns):
        raise BadInput(f"the logits of {type(model).__name__} cannot stay in shards: {why}", "train with gathered logits")
    head.forward = Columns(head, shards.group, forward.size)
    loaded.loss_function = _Loss(VocabularyParts(shards.group, forward.size))


def vocabulary_parts(model: nn.Module) -> VocabularyParts | None:
    """How the ranks share the logits that the model returns, with or without adapters; None: each rank has all of them."""
    loss = getattr(model, "loss_function", None)
    return loss.parts if isinstance(loss, _Loss) else None


def whole_logits(model: nn.Module, logits: torch.Tensor) -> torch.Tensor:
    """The logits that the model returned, of the whole vocabulary and without gradient, from shards or not.

    All ranks of the group call it.
    """
    loss = getattr(model, "loss_function", None)
    return loss.joined(logits) if isinstance(loss, _Loss) else logits


def _has_plain_loss(model: Any) -> bool:
    """Whether the model's forward calls `loss_function`, and this is the function that is replaced here."""
    from transformers.loss.loss_utils import ForCausalLMLoss

    return model.loss_function is ForCausalLMLoss and "self.loss_function(" in inspect.getsource(inspect.unwrap(type(model).forward))


class _Loss:
    """Replacement of transformers' `ForCausalLMLoss`, with its arguments."""

    def __init__(self, parts: VocabularyParts) -> None:
        self.parts = parts

    def joined(self, logits: torch.Tensor) -> torch.Tensor:
        """All ranks' shares of the vocabulary, side by side."""
        group, size = self.parts.group, self.parts.size
        widths = [share_of(size, group.size, rank)[1] for rank in range(group.size)]
        return torch.cat(all_slices(logits, group, logits.ndim - 1, widths), -1)

    def __call__(
        self,
        logits: torch.Tensor,
        labels: torch.Tensor,
        vocab_size: int | None = None,  # noqa: ARG002  that of the whole, which is known
        num_items_in_batch: Any = None,
        ignore_index: int = -100,
        shift_labels: torch.Tensor | None = None,
        **_: Any,
    ) -> torch.Tensor:
        shifted = nn.functional.pad(labels, (0, 1), value=ignore_index)[..., 1:] if shift_labels is None else shift_labels
        flat = logits.reshape(-1, logits.shape[-1])
        return vocabulary_parallel_loss(flat, shifted.reshape(-1), self.parts.group, self.parts.size, num_items_in_batch, ignore_index)
