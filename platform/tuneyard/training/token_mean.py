"""The mean loss over the tokens of a global batch, for models that compute the mean of each micro-batch separately.

transformers passes the number of tokens of the global batch to the model's own loss. Classes that do not accept it (Gemma 4 and other
models with vision) would give micro-batches equal weights, however few of their tokens count: another gradient for each split of a batch.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.loss.loss_utils import ForCausalLMLoss

from tuneyard.training.trainer import SteppedTrainer


def take_token_mean(trainer: SteppedTrainer) -> bool:
    """Make the trainer compute the loss, if the model would not count tokens over the global batch. Returns whether it does."""
    if trainer.model_accepts_loss_kwargs:
        return False
    trainer.compute_loss_func = _token_mean
    return True


def _token_mean(outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
    """Mean loss. `num_items_in_batch`: tokens that count in the global batch; None: in these rows, as in evaluation."""
    loss: torch.Tensor = ForCausalLMLoss(outputs.logits, labels, outputs.logits.shape[-1], num_items_in_batch)
    return loss
