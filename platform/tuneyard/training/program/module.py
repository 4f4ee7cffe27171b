"""The module that is trained: its forward pass is the program's loss.

DDP and DeepSpeed follow one forward pass of what they wrap, and then one backward pass. Inside of this one a program may call its model as
often as it wants, by functional_call too, and take gradients of its own (MAML): those stay on the rank, and the gradient of the loss is
reduced.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tuneyard.api import BadInput
from tuneyard.training.program.blame import blamed
from tuneyard.training.program.contract import Batch
from tuneyard.training.program.loading import Loaded

MODEL_PREFIX = "model."
"""In front of the names that the program's own model gives its parameters."""


class ProgramModule(nn.Module):
    """Called with a batch: its loss. Called with `predicting`: its predictions."""

    def __init__(self, loaded: Loaded, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self._loaded = [loaded]  # in a list: a program may be a module itself, and is not to be trained as a part of this one

    @property
    def loaded(self) -> Loaded:
        return self._loaded[0]

    def forward(self, batch: dict[str, Any], predicting: bool = False) -> Any:
        """Raises BadInput for a loss that is no scalar with a gradient, and for predictions that are not one per row."""
        given = Batch(batch)
        if predicting:
            with blamed(f"predict of {self.loaded.name}", self.loaded.folder):
                return self.loaded.program.predict(self.model, given)
        with blamed(f"loss of {self.loaded.name}", self.loaded.folder, self._advice()):
            loss = self.loaded.program.loss(self.model, given)
        self._check(loss)
        return loss.reshape(())

    def _advice(self) -> str:
        if any(hasattr(parameter, "ds_id") for parameter in self.model.parameters()):
            return (
                "correct the program; under ZeRO-3 weights are whole only inside of a module's own forward: one that reads or replaces "
                "parameters itself (functional_call, MAML) needs strategy.zero 2 or lower"
            )
        return ""

    def _check(self, loss: Any) -> None:
        name = self.loaded.name
        if not torch.is_tensor(loss):
            raise BadInput(f"loss of {name} returned {_kind(loss)}, and not a tensor", "return the mean loss of the batch as a tensor")
        if loss.numel() != 1:
            raise BadInput(
                f"loss of {name} returned a tensor of shape {list(loss.shape)}, and not a scalar",
                "return its mean (loss.mean()); where that is not a mean over rows, have collate give the number of things as count",
            )
        if not loss.is_floating_point():
            raise BadInput(f"loss of {name} is a {loss.dtype}, and no floating-point number", "return the loss itself, not a count of errors")
        if torch.is_grad_enabled() and not loss.requires_grad:
            raise BadInput(
                f"loss of {name} depends on no trained parameter: it has no gradient",
                "compute it from what model(…) returns, without detach(), item() or no_grad(); see requires_grad of the parameters",
            )


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
