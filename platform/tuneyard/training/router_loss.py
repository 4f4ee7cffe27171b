"""The loss that spreads tokens over the experts of a mixture (Shazeer et al. 2017; Fedus et al. 2022, section 2.2), and its weight.

If `output_router_logits` is set, transformers computes it and adds all of it to the loss of each micro-batch. Instead, the trainer adds it
itself, divided by the accumulated micro-batches, as TRL does: the gradient is then the same for each split of the global batch.
"""

from __future__ import annotations

from typing import Any

from tuneyard.api import BadInput


def take_router_loss(model: Any, asked: float | None) -> float:
    """Take over the router's loss: the model adds none itself. Returns the weight for the trainer; 0: none.

    `asked`: `routerLoss` of the task; None: the model's own. Raises BadInput if the task asks for it and the model has no such loss.
    """
    if not hasattr(model, "router_aux_loss_coef"):
        if asked:
            raise BadInput(f"routerLoss is {asked:g}, and a {model.config.model_type} model has no such loss", "remove train.routerLoss")
        return 0.0
    own = float(model.router_aux_loss_coef)
    model.router_aux_loss_coef = 0.0
    return own if asked is None else asked
