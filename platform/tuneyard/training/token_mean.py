"""The mean over the tokens of a global batch, for models that compute the mean of each micro-batch alone.

transformers hands the number of tokens of the global batch to the model's own loss. Classes that do not take it (Gemma 4 and other
models with vision) would weigh micro-batches alike, however few of their tokens count: another gradient for each split of a batch.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.loss.loss_utils import ForCausalLMLoss

from tuneyard.training.trainer import SteppedTrainer


def take_token_mean(trainer: SteppedTrainer) -> bool:
    """Have the trainer compute the loss where its model would not count tokens over the global batch; whether it does."""
    if trainer.model_accepts_loss_kwargs:
        return False
    trainer.compute_loss_func = _token_mean
    return True


def _token_mean(outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
    """`num_items_in_batch`: tokens that count in the global batch; None: in these rows, as in evaluation."""
    loss: torch.Tensor = ForCausalLMLoss(outputs.logits, labels, outputs.logits.shape[-1], num_items_in_batch)
    return loss
